"""The resident half of the command line: one a user, started on demand, ends when it is idle."""
