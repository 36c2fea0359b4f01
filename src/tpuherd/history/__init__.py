"""What events make of what is remembered: pure."""
