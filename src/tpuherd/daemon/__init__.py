"""The resident half of the command line: one a user, begun on demand, ends when it is idle."""
