"""Turns a job file or Python values into a job. Pure."""
