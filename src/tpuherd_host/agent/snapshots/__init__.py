"""Code and files on their way to a host: received, relayed, switched and sent back."""
