"""Checks the key of the host that answers, before anything is sent to it."""

from collections.abc import Callable

import asyncssh

from tpuherd.errors import IdentityMismatch
from tpuherd.ports import Host
from tpuherd.remote.host_key_pins import Pins

HOST_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


class HostKeyVerifier(asyncssh.SSHClient):
    """Checks the host key before anything is sent to the host."""

    def __init__(self, host: Host, pins: Pins) -> None:
        self.host = host
        self.pins = pins
        self.known = pins.pinned_keys(host) or host.host_keys
        self.shown = ""
        #: Called when the host answers: extends the timeout.
        self.heard: Callable[[], None] = lambda: None
        self.lost: Callable[[], None] = lambda: None  #: called when the connection has ended

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.heard()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.heard()
        self.shown = " ".join(key.export_public_key().decode().split()[:2])
        return not self.known or self.shown in self.known

    def pin_shown_key(self) -> None:
        """Pin the keys from the cloud, else the shown one: the handshake proved that it owns it."""
        self.pins.pin_keys(self.host, self.known or (self.shown,))

    def stranger_error(self) -> IdentityMismatch:
        """The error for a key that is not the host's."""
        owner = self.pins.key_owner(self.shown)
        if owner is not None and owner.incarnation != self.host.incarnation:
            return IdentityMismatch(f"another node has its address now: {owner.name} answers")
        return IdentityMismatch(
            "the host key at its address does not match: another node has this address now,"
            " or someone intercepts the connection",
            hint="nothing was sent; herd asks the cloud again at the next command",
        )


def host_key_algorithms(known: tuple[str, ...]) -> list[str]:
    """The host key algorithms to ask for: those of known keys, else all, the best first."""
    kinds = {key.partition(" ")[0] for key in known}
    wanted = [
        name for name in HOST_KEYS if name in kinds or (name[:3] == "rsa" and "ssh-rsa" in kinds)
    ]
    return wanted or list(HOST_KEYS)
