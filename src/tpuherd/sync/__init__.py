"""Snapshots of code and their way to hosts."""
