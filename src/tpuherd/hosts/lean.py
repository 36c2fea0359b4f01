"""Spares an SSH connection what asyncssh does for each packet and nobody needs."""

import logging

import asyncssh
from asyncssh.packet import SSHPacketLogger

MSG_IGNORE = 2
AUTHENTICATED = frozenset(("aes128-gcm@openssh.com", "aes256-gcm@openssh.com"))


class Quiet(SSHPacketLogger):
    """Words no line of log for a packet."""

    def log_sent_packet(self, *packet: object) -> None:
        """Nothing is said."""

    def log_received_packet(self, *packet: object) -> None:
        """Nor here."""


QUIET = Quiet()


def hush(channel: SSHPacketLogger) -> None:
    """Word no line for what comes by this channel, either."""
    if not asyncssh.logger.isEnabledFor(logging.DEBUG):
        channel.log_received_packet = QUIET.log_received_packet  # type: ignore[method-assign, assignment]


def lean(connection: asyncssh.SSHClientConnection) -> asyncssh.SSHClientConnection:
    """The same connection, with half the packets.

    asyncssh sends an empty packet ahead of each, a guard against an attack on CBC ciphers that
    AES-GCM does not have, and words a line of debug log for each, which is thrown away. There is no
    option against it (asyncssh 2.24, `SSHConnection.send_packet`); when there is, this may go.
    """
    cipher = connection.get_extra_info("send_cipher")
    if cipher not in AUTHENTICATED or asyncssh.logger.isEnabledFor(logging.DEBUG):
        return connection
    whole = connection.send_packet

    def send_packet(kind: int, *args: bytes, handler: SSHPacketLogger | None = None) -> None:
        if kind != MSG_IGNORE:
            whole(kind, *args, handler=QUIET)

    connection.send_packet = send_packet  # type: ignore[method-assign, assignment]
    return connection
