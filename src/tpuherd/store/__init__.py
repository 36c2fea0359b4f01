"""What is kept on this machine: logs, and later the events, the wishes and the lease."""
