"""The SSH server of the world's hosts, with an address for each host."""
