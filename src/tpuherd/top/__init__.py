"""`herd top`: a screen in the terminal that follows jobs, hosts and chips; needs textual."""
