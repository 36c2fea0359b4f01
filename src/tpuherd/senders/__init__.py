"""Sends messages to receivers: over the web, by e-mail, by a command or by apprise."""
