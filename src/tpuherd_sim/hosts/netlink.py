"""Links, addresses and routes by netlink, so that nothing need be installed for it."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tpuherd_sim.hosts import syscalls

NEW_LINK, DELETE_LINK, NEW_ADDRESS, NEW_ROUTE, NEW_QUEUE, DELETE_QUEUE = 16, 17, 20, 24, 36, 37
REQUEST, ACK, REPLACE, EXCLUSIVE, CREATE = 1, 4, 0x100, 0x200, 0x400
UP = 1
ADDRESS, NAME, MASTER, INFO, NAMESPACE_FILE, KIND, DATA = 1, 3, 10, 18, 28, 1, 2
PEER, SNOOPING = 1, 23
ROOT = 0xFFFFFFFF
SLOW_BYTES_PER_S, SLOW_BURST, SLOW_BACKLOG = 1_250_000, 32 * 1024, 256 * 1024


class Netlink:
    """A line to the kernel about the network namespace in which it was opened."""

    def __init__(self) -> None:
        self.link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)

    def close(self) -> None:
        self.link.close()

    def ask(self, kind: int, flags: int, body: bytes, what: str) -> None:
        """One request and its acknowledgement."""
        self.link.send(
            struct.pack("IHHII", 16 + len(body), kind, flags | REQUEST | ACK, 1, 0) + body
        )
        answer = self.link.recv(65536)
        error = -struct.unpack_from("i", answer, 16)[0]
        if error:
            raise OSError(error, f"{what}: {os.strerror(error)}")

    def add_bridge(self, name: str) -> None:
        """A switch without an address of its own."""
        options = attribute(KIND, b"bridge") + attribute(DATA, attribute(SNOOPING, b"\0"))
        body = device(UP) + text(NAME, name) + attribute(INFO, options)
        self.ask(NEW_LINK, CREATE | EXCLUSIVE, body, f"bridge {name}")

    def add_cable(self, name: str, bridge: str, namespace: int, hardware: bytes) -> None:
        """A cable from a bridge to eth0 of another network namespace."""
        far = device(0) + text(NAME, "eth0") + number(NAMESPACE_FILE, namespace)
        far += attribute(ADDRESS, hardware)
        options = attribute(KIND, b"veth") + attribute(DATA, attribute(PEER, far))
        body = device(UP) + text(NAME, name) + number(MASTER, socket.if_nametoindex(bridge))
        self.ask(NEW_LINK, CREATE | EXCLUSIVE, body + attribute(INFO, options), f"link {name}")

    def switch(self, name: str, *, up: bool) -> None:
        """Turn a link on or off."""
        self.ask(NEW_LINK, 0, device(UP if up else 0) + text(NAME, name), f"link {name}")

    def remove(self, name: str) -> None:
        """Take a link away, and its other end with it."""
        self.ask(DELETE_LINK, 0, device(0) + text(NAME, name), f"link {name}")

    def add_address(self, name: str, address: str) -> None:
        """A single address on a link."""
        packed = socket.inet_aton(address)
        head = struct.pack("BBBBI", socket.AF_INET, 32, 0, 0, socket.if_nametoindex(name))
        body = head + attribute(1, packed) + attribute(2, packed)
        self.ask(NEW_ADDRESS, CREATE | EXCLUSIVE, body, f"address {address}")

    def add_default_route(self, name: str) -> None:
        """Everything is to be found on this link."""
        head = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 253, 1, 0)
        body = head + number(4, socket.if_nametoindex(name))
        self.ask(NEW_ROUTE, CREATE | EXCLUSIVE, body, "default route")

    def slow_down(self, name: str) -> None:
        """Let only a trickle through this link (a token bucket)."""
        rate = struct.pack("BBHhHI", 0, 1, 0, 0, 0, SLOW_BYTES_PER_S)
        bucket = rate + bytes(12) + struct.pack("III", SLOW_BACKLOG, 0, 0)
        options = attribute(1, bucket) + number(6, SLOW_BURST)
        body = queue(name) + text(1, "tbf") + attribute(2, options)
        self.ask(NEW_QUEUE, CREATE | REPLACE, body, f"slowing {name}")

    def speed_up(self, name: str) -> None:
        """Take the token bucket away, where there is one."""
        try:
            self.ask(DELETE_QUEUE, 0, queue(name), f"queue of {name}")
        except OSError as error:
            if error.errno not in {2, 22}:
                raise


@contextmanager
def inside(namespace: int) -> Iterator[Netlink]:
    """A netlink line inside another network namespace; we are there meanwhile."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.enter(namespace)
        line = Netlink()
        try:
            yield line
        finally:
            line.close()
            syscalls.enter(home)
    finally:
        os.close(home)


def attribute(kind: int, value: bytes) -> bytes:
    """Length, kind, value, padded to four bytes."""
    length = 4 + len(value)
    return struct.pack("HH", length, kind) + value + bytes(-length % 4)


def text(kind: int, value: str) -> bytes:
    """An attribute with a C string."""
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """An attribute with 32 bits."""
    return attribute(kind, struct.pack("I", value))


def device(flags: int) -> bytes:
    """The head of a message about a link."""
    return struct.pack("BxHiII", 0, 0, 0, flags, UP)


def queue(name: str) -> bytes:
    """The head of a message about what a link lets through."""
    return struct.pack("BxxxiIII", 0, socket.if_nametoindex(name), 0x10000, ROOT, 0)
