"""Account for where time and money went; pure."""
