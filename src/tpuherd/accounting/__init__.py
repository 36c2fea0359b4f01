"""Where time and money went: pure."""
