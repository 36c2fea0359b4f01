"""Commands on hosts, shared by the command line and the Python API."""
