"""Takes snapshots of code, ships them to hosts, and copies files to and from hosts."""
