"""Ports and loopback networks: what a world takes of this machine, or why it can't."""

import errno
import hashlib
import socket
from pathlib import Path

from tpuherd_sim.state_dir import WorldError

HOME = "127.0.0.1"
NETWORKS = range(64, 127)  #: 127.<one of these>.y.z are the hosts' external addresses
#: No host ever has this address: a socket on it marks the network as taken, until we die.
MARK = "127.{network}.255.254"
MARK_PORT = 64017


def bind_listener(port: int, option: str, *, address: str = HOME) -> socket.socket:
    """A socket bound to this port; to a free one where it is 0."""
    # asyncio sends small answers at once only where the socket names its protocol.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address, port))
        bound.listen(0)
    except OSError as error:
        bound.close()
        raise WorldError(bind_error_text(error, port, option)) from error
    bound.setblocking(False)
    return bound


def bind_preferred_port(
    port: int, option: str, before: int, *, address: str = HOME
) -> socket.socket:
    """The port that was asked for, else the one of the last time, else a free one."""
    if port == 0 and before:
        try:
            return bind_listener(before, option, address=address)
        except WorldError:
            pass  # somebody else has it by now, and nobody insists on it
    return bind_listener(port, option, address=address)


def bind_error_text(error: OSError, port: int, option: str) -> str:
    """The sentence for a port that can't be had."""
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use; choose another {option}, or omit it to get a free port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} needs root; choose {option} of at least 1024, or omit it"
    return f"Can't open port {port} ({error.strerror}); choose another {option}"


def claim_network(folder: Path, before: int | None) -> tuple[int, socket.socket | None]:
    """A loopback network that no other running world has, and the socket that keeps it.

    The same folder gets the same network wherever possible; a world that has been there before
    keeps its own, because its nodes have addresses in it. No socket: the system has none of them.
    """
    first = int.from_bytes(hashlib.blake2b(str(folder).encode(), digest_size=4).digest(), "big")
    wished = before or NETWORKS[first % len(NETWORKS)]
    for step in range(len(NETWORKS)):
        network = NETWORKS[(wished - NETWORKS.start + step) % len(NETWORKS)]
        try:
            return network, bind_network_marker(network)
        except OSError as error:
            if before or error.errno != errno.EADDRINUSE:
                return wished, None  # macOS, for one, has nothing but 127.0.0.1
    return wished, None


def bind_network_marker(network: int) -> socket.socket:
    """Have a network for ourselves."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        bound.bind((MARK.format(network=network), MARK_PORT))
    except OSError:
        bound.close()
        raise
    return bound


def choose_ssh_port(wished: int, before: int, address: str) -> int:
    """A port that is free on the hosts' addresses, of which this is one."""
    with bind_preferred_port(wished, "--ssh-port", before, address=address) as bound:
        port: int = bound.getsockname()[1]
    return port
