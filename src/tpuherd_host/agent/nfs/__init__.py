"""Mounts and exports NFS folders on this host."""
