"""Facts about the host, and cleaning it up."""
