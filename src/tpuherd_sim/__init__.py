"""The world: a Cloud TPU that runs on this machine, with hosts one can log in to."""
