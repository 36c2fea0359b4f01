"""What a failed run's logs say: rules for known failures, and which of several is the cause."""
