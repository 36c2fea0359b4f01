"""Sweeps: search spaces, scheduling and pruning. Pure, except for the Optuna adapter."""
