"""Trials of a sweep: which to try next, which to prune."""
