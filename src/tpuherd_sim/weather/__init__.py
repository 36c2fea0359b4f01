"""Preemptions, droughts and faults that users or scenarios trigger."""
