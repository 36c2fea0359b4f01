"""What to do now: pure."""
