"""Decide what to do now; pure functions without I/O."""
