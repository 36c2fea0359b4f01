"""Network links, addresses and routes by netlink, without any tools installed."""

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
    """A netlink socket for the network namespace in which it was opened."""

    def __init__(self) -> None:
        self.link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)

    def close(self) -> None:
        self.link.close()

    def send_request(self, kind: int, flags: int, body: bytes, what: str) -> None:
        """Send one request and wait for its acknowledgement."""
        self.link.send(
            struct.pack("IHHII", 16 + len(body), kind, flags | REQUEST | ACK, 1, 0) + body
        )
        answer = self.link.recv(65536)
        error = -struct.unpack_from("i", answer, 16)[0]
        if error:
            raise OSError(error, f"{what}: {os.strerror(error)}")

    def add_bridge(self, name: str) -> None:
        """Add a bridge without an address."""
        options = encode_attribute(KIND, b"bridge") + encode_attribute(
            DATA, encode_attribute(SNOOPING, b"\0")
        )
        body = link_header(UP) + text_attribute(NAME, name) + encode_attribute(INFO, options)
        self.send_request(NEW_LINK, CREATE | EXCLUSIVE, body, f"bridge {name}")

    def add_cable(self, name: str, bridge: str, namespace: int, hardware: bytes) -> None:
        """Add a cable from a bridge to eth0 of another network namespace."""
        far = (
            link_header(0)
            + text_attribute(NAME, "eth0")
            + number_attribute(NAMESPACE_FILE, namespace)
        )
        far += encode_attribute(ADDRESS, hardware)
        options = encode_attribute(KIND, b"veth") + encode_attribute(
            DATA, encode_attribute(PEER, far)
        )
        body = (
            link_header(UP)
            + text_attribute(NAME, name)
            + number_attribute(MASTER, socket.if_nametoindex(bridge))
        )
        self.send_request(
            NEW_LINK, CREATE | EXCLUSIVE, body + encode_attribute(INFO, options), f"link {name}"
        )

    def connect_bridges(self, name: str, bridge: str, other: str) -> None:
        """Add a cable of this name between two bridges."""
        far_name = f"{name}f"
        far = link_header(0) + text_attribute(NAME, far_name)
        options = encode_attribute(KIND, b"veth") + encode_attribute(
            DATA, encode_attribute(PEER, far)
        )
        near = link_header(0) + text_attribute(NAME, name) + encode_attribute(INFO, options)
        self.send_request(NEW_LINK, CREATE | EXCLUSIVE, near, f"link {name}")
        for end, master in ((name, bridge), (far_name, other)):
            number = number_attribute(MASTER, socket.if_nametoindex(master))
            body = link_header(UP) + text_attribute(NAME, end) + number
            self.send_request(NEW_LINK, 0, body, f"link {end}")

    def switch_link(self, name: str, *, up: bool) -> None:
        self.send_request(
            NEW_LINK, 0, link_header(UP if up else 0) + text_attribute(NAME, name), f"link {name}"
        )

    def remove_link(self, name: str) -> None:
        """Remove a link and its other end."""
        self.send_request(
            DELETE_LINK, 0, link_header(0) + text_attribute(NAME, name), f"link {name}"
        )

    def add_address(self, name: str, address: str) -> None:
        packed = socket.inet_aton(address)
        head = struct.pack("BBBBI", socket.AF_INET, 32, 0, 0, socket.if_nametoindex(name))
        body = head + encode_attribute(1, packed) + encode_attribute(2, packed)
        self.send_request(NEW_ADDRESS, CREATE | EXCLUSIVE, body, f"address {address}")

    def add_default_route(self, name: str) -> None:
        """Route everything to this link."""
        head = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 253, 1, 0)
        body = head + number_attribute(4, socket.if_nametoindex(name))
        self.send_request(NEW_ROUTE, CREATE | EXCLUSIVE, body, "default route")

    def slow_down(self, name: str) -> None:
        """Limit the traffic of this link with a token bucket."""
        rate = struct.pack("BBHhHI", 0, 1, 0, 0, 0, SLOW_BYTES_PER_S)
        bucket = rate + bytes(12) + struct.pack("III", SLOW_BACKLOG, 0, 0)
        options = encode_attribute(1, bucket) + number_attribute(6, SLOW_BURST)
        body = queue_header(name) + text_attribute(1, "tbf") + encode_attribute(2, options)
        self.send_request(NEW_QUEUE, CREATE | REPLACE, body, f"slowing {name}")

    def speed_up(self, name: str) -> None:
        """Remove the token bucket if there is one."""
        try:
            self.send_request(DELETE_QUEUE, 0, queue_header(name), f"queue of {name}")
        except OSError as error:
            if error.errno not in {2, 22}:
                raise


@contextmanager
def open_in_namespace(namespace: int) -> Iterator[Netlink]:
    """Open a netlink socket inside another network namespace, which this thread enters
    meanwhile.
    """
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.enter_namespace(namespace)
        line = Netlink()
        try:
            yield line
        finally:
            line.close()
            syscalls.enter_namespace(home)
    finally:
        os.close(home)


def encode_attribute(kind: int, value: bytes) -> bytes:
    """Return length, kind and value, padded to four bytes."""
    length = 4 + len(value)
    return struct.pack("HH", length, kind) + value + bytes(-length % 4)


def text_attribute(kind: int, value: str) -> bytes:
    """Return an attribute with a C string."""
    return encode_attribute(kind, value.encode() + b"\0")


def number_attribute(kind: int, value: int) -> bytes:
    """Return an attribute with a 32-bit number."""
    return encode_attribute(kind, struct.pack("I", value))


def link_header(flags: int) -> bytes:
    """Return the header of a message about a link."""
    return struct.pack("BxHiII", 0, 0, 0, flags, UP)


def queue_header(name: str) -> bytes:
    """Return the header of a message about a link's queueing."""
    return struct.pack("BxxxiIII", 0, socket.if_nametoindex(name), 0x10000, ROOT, 0)
