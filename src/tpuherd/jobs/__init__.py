"""Where wishes are made, changed and dropped: for commands and for Python alike."""
