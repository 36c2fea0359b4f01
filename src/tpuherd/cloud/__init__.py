"""What we ask of the cloud: Cloud TPU, and the little of Compute that goes with it."""
