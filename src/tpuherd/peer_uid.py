"""Finds the user of the process at the other end of a loopback connection."""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

Address = tuple[str, int]


LOOPBACK = b"\x7f"  #: how IPv4 addresses of this machine itself begin
NO_COOKIE = 0xFFFFFFFF
LISTENS = 10  #: a socket state, as numbered by the kernel
NO_ENTRY = 2
MAPPED = bytes(10) + b"\xff\xff"  #: prefix of an IPv4 address on an IPv6 socket
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def find_owner(peer: Address, here: Address) -> int | None:
    """Return the user id of the process that connected from `peer` to `here`, or None if it is
    gone.

    A socket that no process has open (inode 0) appears to belong to root, so it counts as gone.
    Raises OSError on machines that do not show this (other than Linux).
    """
    try:
        return ask_kernel(peer, here)
    except OSError:
        return look_up_owner(peer, here)


def is_stranger(peer: Address, here: Address) -> bool:
    """Whether another user of this machine, other than root, has connected; also if it is gone by
    now. False for other machines, and where the kernel does not tell."""
    try:
        uid = find_owner(peer[:2], here[:2])
        if uid is None:
            return socket.inet_aton(peer[0])[:1] == LOOPBACK
        return uid not in (0, os.getuid())
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)  # a flood does not hide who makes it


def can_tell() -> bool:
    """Whether this machine shows users of connections, tested with a connection of our own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as end,
    ):
        try:
            return find_owner(end.getpeername(), end.getsockname()) == os.getuid()
        except OSError:
            return False


def ask_kernel(peer: Address, here: Address) -> int | None:
    """Ask by netlink, which takes one message however many connections exist."""
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError("there is no netlink here")
    ends = struct.pack("!HH", peer[1], here[1]) + pad_address(peer[0]) + pad_address(here[0])
    question = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, NO_COOKIE)
    question += ends + struct.pack("=III", 0, NO_COOKIE, NO_COOKIE)
    head = struct.pack("=IHHII", 16 + len(question), BY_FAMILY, REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as line:
        line.settimeout(1)
        line.send(head + question)
        answer = line.recv(4096)
    kind = struct.unpack_from("=IH", answer)[1]
    if kind == ERROR:
        number = -struct.unpack_from("=i", answer, 16)[0]
        if number == NO_ENTRY:
            return None
        raise OSError(number, os.strerror(number))
    state = answer[17]
    uid, inode = struct.unpack_from("=II", answer, 16 + 64)
    return int(uid) if inode and state != LISTENS and answer[20:24] == ends[:4] else None


def pad_address(address: str) -> bytes:
    """Return an IPv4 address padded to the length of an IPv6 address."""
    return socket.inet_aton(address) + bytes(12)


def look_up_owner(peer: Address, here: Address) -> int | None:
    """Search the kernel's connection tables, for when netlink does not answer."""
    wanted = {
        f"{kernel_notation(peer, mapped=mapped)} {kernel_notation(here, mapped=mapped)}"
        for mapped in (False, True)
    }
    Path(TABLES[0]).read_text()  # OSError if it does not exist
    for fields in connection_rows():
        if f"{fields[1]} {fields[2]}" in wanted and fields[9] != "0":
            return int(fields[7])
    return None


def connection_rows() -> Iterator[list[str]]:
    """Yield the lines of both tables, split."""
    for table in TABLES:
        try:
            lines = Path(table).read_text().splitlines()
        except FileNotFoundError:
            continue
        yield from (line.split() for line in lines[1:])


def kernel_notation(end: Address, *, mapped: bool) -> str:
    """Return an address and port as in those tables: words in the machine's byte order."""
    raw = (MAPPED if mapped else b"") + socket.inet_aton(end[0])
    words = (struct.unpack_from("=I", raw, at)[0] for at in range(0, len(raw), 4))
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"


SOCK_DIAG, BY_FAMILY, ERROR, REQUEST = 4, 20, 2, 1
