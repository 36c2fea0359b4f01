"""What the world does to its users: preemptions, droughts, faults; by command or by scenario."""
