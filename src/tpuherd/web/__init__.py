"""The web page of `herd ui`: an HTTP server for this user's browsers, and what it serves."""
