"""A simulated Cloud TPU on this machine, with hosts that one can log in to."""
