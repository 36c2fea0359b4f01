"""What serves a host from outside while it runs: metadata, guest agent, packages, metrics."""
