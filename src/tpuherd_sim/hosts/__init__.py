"""The hosts of a world: real, isolated places on this machine that behave like TPU VMs."""
