"""Writes a job for another engine: Kubernetes or Slurm."""
