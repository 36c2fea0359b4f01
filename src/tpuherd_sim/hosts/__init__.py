"""Isolated hosts on this machine that behave like TPU VMs."""
