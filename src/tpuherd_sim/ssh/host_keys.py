"""The SSH host keys, one file each: a reboot keeps the key, a new host gets a new one."""

import os
from pathlib import Path

import asyncssh


def host_key(folder: Path, host: str) -> asyncssh.SSHKey:
    """Return the private key of a host; create it at first use."""
    file = folder / f"{host}.ed25519"
    if not file.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = asyncssh.generate_private_key("ssh-ed25519", comment=f"root@{host}")
        fresh = file.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as out:
            out.write(made.export_private_key())
        fresh.rename(file)
    return asyncssh.read_private_key(file)


def public_host_key(folder: Path, host: str) -> tuple[str, str]:
    """Return type and text as the guest agent publishes them."""
    kind, text = host_key(folder, host).export_public_key().decode().split()[:2]
    return kind, text


def delete_host_key(folder: Path, host: str) -> None:
    """Delete the key of a removed host."""
    (folder / f"{host}.ed25519").unlink(missing_ok=True)
