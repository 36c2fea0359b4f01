"""Spares an SSH connection what asyncssh does for each packet and nobody needs."""

import logging
from typing import Any

import asyncssh
from asyncssh.packet import SSHPacketLogger

MSG_IGNORE = 2
MSG_CHANNEL_DATA = 94
LENGTH, TAG = 4, 16  #: before each packet, and behind it
DATA = 10  #: where a packet's data begin, behind the padding's length, kind, channel and length
KNOWN = asyncssh.__version__.startswith("2.24.")  #: whose insides `quicken` works on
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
    if KNOWN and connection.get_extra_info("recv_cipher") in AUTHENTICATED:
        quicken(connection)
    return connection


def quicken(connection: Any) -> None:
    """Have all that came for a channel taken at once, where asyncssh takes packet by packet.

    For each it copies the rest of what came four times, and calls forty functions: a third of what
    a megabyte costs. Here whole packets of data are opened in place. Any other packet, and one that
    can't be opened, is left to asyncssh as it came (2.24, `SSHConnection._recv_pkthdr`).
    """
    usual = connection._recv_pkthdr

    def _recv_pkthdr() -> bool:
        came = connection._inpbuf
        cipher = connection._recv_encryption._cipher
        start, channel = 0, None
        pieces: list[bytes] = []
        while (end := packet_end(came, start)) <= len(came):
            before = cipher._iv
            sealed = came[start + LENGTH : end]
            text = cipher.verify_and_decrypt(came[start : start + LENGTH], sealed, b"")
            taker = taker_of(connection, text)
            if taker is None or channel not in (None, taker):
                cipher._iv = before
                break
            channel = taker
            pieces.append(text[DATA : -text[0]])
            start = end
        if channel is None:
            # A packet that is not whole may wait, unless it says that it is longer than any.
            waits = len(came) < end <= connection._max_recv_pktlen
            return False if waits else bool(usual())
        connection._recv_seq = (connection._recv_seq + len(pieces)) & 0xFFFFFFFF
        connection._inpbuf = came[start:]
        channel._accept_data(b"".join(pieces))
        return True

    connection._recv_pkthdr = _recv_pkthdr
    if connection._recv_handler == usual:
        connection._recv_handler = _recv_pkthdr


def packet_end(came: bytes, start: int) -> int:
    """Where the packet that begins there ends, which may not have come yet."""
    return start + LENGTH + int.from_bytes(came[start : start + LENGTH], "big") + TAG


def taker_of(connection: Any, text: bytes | None) -> Any:
    """The channel that a packet has data for; None if it is another packet, or is not in order."""
    if not text or text[1] != MSG_CHANNEL_DATA:
        return None
    channel = connection._channels.get(int.from_bytes(text[2:6], "big"))
    many = int.from_bytes(text[6:DATA], "big")
    if channel is None or channel._recv_state != "open" or many > channel._recv_window:
        return None
    return channel if many and DATA + many + text[0] == len(text) else None
