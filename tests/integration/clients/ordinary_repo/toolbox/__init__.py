"""What the script imports."""
