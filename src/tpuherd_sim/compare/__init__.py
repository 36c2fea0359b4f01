"""Compares a transcript of a real cloud with what the model of the world does."""
