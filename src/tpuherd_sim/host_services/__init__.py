"""Services of each running host: metadata, guest agent, packages, metrics."""
