"""SSH connections to hosts, kept open, and the links to their agents."""
