"""Kept files: what a script wrote, copied as whole generations and brought back."""
