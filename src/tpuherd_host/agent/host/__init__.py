"""What the agent finds out about its host, and cleans up there."""
