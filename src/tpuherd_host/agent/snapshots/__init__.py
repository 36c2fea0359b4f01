"""Receives snapshots and files, relays them, switches to them, and sends them back."""
