"""The names by which `ssh`, and whatever uses it, reaches our hosts."""
