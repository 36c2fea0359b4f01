"""What the agent does to connections, processes, logs and files."""
