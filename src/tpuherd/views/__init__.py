"""Render values as text and JSON; pure."""
