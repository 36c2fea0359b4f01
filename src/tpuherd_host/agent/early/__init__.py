"""Python programs that start before their attempt does, and wait."""
