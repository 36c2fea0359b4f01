"""Fold events into what is remembered; pure."""
