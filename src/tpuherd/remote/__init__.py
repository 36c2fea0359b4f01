"""The way to the hosts: SSH connections that are kept, and the agents at their ends."""
