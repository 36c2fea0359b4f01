"""What herd stores on this machine: jobs, events, the engine's lease, secrets and logs."""
