"""The SSH server of the world's hosts: one in all, with an address for each host."""
