"""Runs a command in a container on this host: `image`."""
