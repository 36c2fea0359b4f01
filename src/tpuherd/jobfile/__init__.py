"""A job file or Python values become a job: pure."""
