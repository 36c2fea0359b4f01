"""What this machine keeps: logs, events, jobs, history and the engine's lease."""
