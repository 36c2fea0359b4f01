"""What runs on a TPU VM, standing alone: the agent, and what a training script may import."""
