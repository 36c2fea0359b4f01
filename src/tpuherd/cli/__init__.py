"""The command line: one file a noun; each parses, calls once and prints what came back."""
