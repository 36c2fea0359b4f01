"""What runs on hosts at a user's word: the same for the command line and for Python."""
