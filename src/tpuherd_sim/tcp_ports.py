"""Reserves ports and loopback networks of this machine for a world."""

import errno
import hashlib
import socket
from pathlib import Path

from tpuherd_sim.state_dir import WorldError

HOME = "127.0.0.1"
NETWORKS = range(64, 127)  #: 127.<one of these>.y.z are the hosts' external addresses
#: An address that no host gets: a socket on it marks the network as in use while we live.
MARK = "127.{network}.255.254"
MARK_PORT = 64017


def bind_listener(port: int, option: str, *, address: str = HOME) -> socket.socket:
    """Return a socket bound to this port, or to a free one if it is 0."""
    # asyncio sends small responses immediately only if the socket names its protocol.
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
    """Bind the requested port, else the previous one, else a free one."""
    if port == 0 and before:
        try:
            return bind_listener(before, option, address=address)
        except WorldError:
            pass  # in use by now, and it was not requested explicitly
    return bind_listener(port, option, address=address)


def bind_error_text(error: OSError, port: int, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use; choose another {option}, or omit it to get a free port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} needs root; choose {option} of at least 1024, or omit it"
    return f"Can't open port {port} ({error.strerror}); choose another {option}"


def claim_network(folder: Path, before: int | None) -> tuple[int, socket.socket | None]:
    """Return a loopback network that no other running world has, and the socket that reserves it.

    The same folder gets the same network if possible. An existing world keeps its network, because
    its nodes have addresses in it. The socket is None if the system lacks these addresses.
    """
    first = int.from_bytes(hashlib.blake2b(str(folder).encode(), digest_size=4).digest(), "big")
    preferred = before or NETWORKS[first % len(NETWORKS)]
    for step in range(len(NETWORKS)):
        network = NETWORKS[(preferred - NETWORKS.start + step) % len(NETWORKS)]
        try:
            return network, bind_network_marker(network)
        except OSError as error:
            if before or error.errno != errno.EADDRINUSE:
                return preferred, None  # macOS, for example, has only 127.0.0.1
    return preferred, None


def bind_network_marker(network: int) -> socket.socket:
    """Reserve a network."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        bound.bind((MARK.format(network=network), MARK_PORT))
    except OSError:
        bound.close()
        raise
    return bound


def choose_ssh_port(preferred: int, before: int, address: str) -> int:
    """Return a port that is free on the hosts' addresses, of which this is one."""
    with bind_preferred_port(preferred, "--ssh-port", before, address=address) as bound:
        port: int = bound.getsockname()[1]
    return port
