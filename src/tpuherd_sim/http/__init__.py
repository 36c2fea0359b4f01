"""How a world is reached over HTTP: the app, its server, and the front that plays Google."""
