"""Reads what the launcher sends: arguments, folder, environment and three files."""

import asyncio
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd.daemon.handshake import PROTOCOL
from tpuherd.errors import InvalidInput

LETTER_MAX = 8 << 20
LENGTH = 4
FILES = 3
UCRED = struct.Struct("3i")  #: of Linux: process, user, group
XUCRED, XUCRED_SIZE = struct.Struct("2I"), 76  #: of macOS: version, user, then 17 groups
SOL_LOCAL = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DaemonRequest:
    """One command line."""

    stamp: str  #: the installation that sent it
    folder: Path
    arguments: tuple[str, ...]
    environ: Mapping[str, str]


def is_same_user(connection: socket.socket) -> bool:
    """Whether the peer is this user. If the system can't tell, the folder's mode protects us."""
    uid = peer_uid(connection)
    return uid is None or uid == os.getuid()


def peer_uid(connection: socket.socket) -> int | None:
    """Return the user at the other end, as Linux or macOS tells it."""
    if hasattr(socket, "SO_PEERCRED"):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size)
        return int(UCRED.unpack(found)[1])
    local: int | None = getattr(socket, "LOCAL_PEERCRED", None)
    if local is None:
        return None
    return read_xucred(connection.getsockopt(SOL_LOCAL, local, XUCRED_SIZE))


def read_xucred(found: bytes) -> int | None:
    """Return the user of macOS's struct xucred; None for a version that we don't know."""
    if len(found) < XUCRED.size:
        return None
    version, uid = XUCRED.unpack_from(found)
    return int(uid) if version == 0 else None


async def receive_request(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return the text of a request and its three files, which the caller must close."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def heard() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection, heard)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    text, files, _, _ = socket.recv_fds(connection, 1 << 16, FILES)
    for file in files:
        os.set_inheritable(file, False)
    try:
        while len(text) < LENGTH or len(text) < LENGTH + request_length(text):
            more = await loop.sock_recv(connection, 1 << 16)
            if not more:
                raise InvalidInput("the request is incomplete")
            text += more
    except (OSError, InvalidInput):
        for file in files:
            os.close(file)
        raise
    return text[LENGTH:], files


def request_length(text: bytes) -> int:
    """Return the length that its first bytes declare."""
    length = int.from_bytes(text[:LENGTH], "big")
    if length > LETTER_MAX:
        raise InvalidInput("the request is too long")
    return length


def decode_request(text: bytes) -> DaemonRequest:
    words = text.split(b"\0")
    if len(words) < 4 or words[0] != PROTOCOL:
        raise InvalidInput("the request has an unknown format")
    count = int(words[3])
    arguments, variables = words[4 : 4 + count], words[4 + count :]
    pairs = (os.fsdecode(pair).partition("=") for pair in variables)
    return DaemonRequest(
        stamp=words[1].decode(),
        folder=Path(os.fsdecode(words[2])),
        arguments=tuple(map(os.fsdecode, arguments)),
        environ={name: value for name, _, value in pairs},
    )
