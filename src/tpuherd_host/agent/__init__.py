"""The agent of a host: Python 3.8, standard library only."""
