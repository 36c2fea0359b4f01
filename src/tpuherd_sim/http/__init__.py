"""HTTP access to a world: the app, its server, and the proxy that stands in for Google."""
