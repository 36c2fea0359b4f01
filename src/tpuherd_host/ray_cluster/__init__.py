"""Runs a job's command with a Ray cluster over its hosts: `cluster: ray`."""
