"""Text that may be shown to others: without secrets and names."""
