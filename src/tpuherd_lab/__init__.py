"""The policy laboratory: ways to keep a job running, compared on measured capacity."""
