"""Forwarded connections: into the host's network (-L, -D) and from it to the client (-R)."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import asyncssh

from tpuherd_sim.hosts.host_protocols import Host
from tpuherd_sim.ssh.accept_loop import Acceptor
from tpuherd_sim.ssh.authorized_keys import find_address
from tpuherd_sim.ssh.bridge import Bridge, SinkKind
from tpuherd_sim.ssh.session import SessionOwner, read_text

PATIENCE_S = 30.0  #: limit for connecting inside a host


class Tunnel(asyncssh.SSHTCPSession[bytes], asyncssh.SSHUNIXSession[bytes]):
    """Joins a channel of the client and a socket of the host until both have ended."""

    def __init__(self, owner: SessionOwner, end: socket.socket) -> None:
        self.owner = owner
        self.end = end
        self.client_ended = False  #: the client will send no more
        self.host_ended = False  #: the host will send no more

    def connection_made(self, chan: Any) -> None:
        self.channel = chan
        self.bridge = Bridge(chan, self.on_host_ended)
        self.owner.add_bridge(self.bridge)

    def session_started(self) -> None:
        descriptor = self.end.detach()
        self.bridge.attach_descriptors(SinkKind.SOCKET, descriptor, {descriptor: None})

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.bridge.add_input(data)

    def eof_received(self) -> bool:
        self.client_ended = True
        self.bridge.end_input()
        self.close_if_done()
        return True

    def pause_writing(self) -> None:
        self.bridge.pause_output()

    def resume_writing(self) -> None:
        self.bridge.resume_output()

    def on_host_ended(self) -> None:
        self.host_ended = True
        if not self.channel.is_closing():
            self.channel.write_eof()
        self.close_if_done()

    def close_if_done(self) -> None:
        """Close when both sides have ended."""
        if self.client_ended and self.host_ended:
            self.channel.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end.close()
        self.bridge.close()
        self.owner.remove_bridge(self.bridge)


async def open_tunnel(owner: SessionOwner, name: str, port: int) -> Tunnel:
    """Connect to the client's target, as seen from inside the host."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return Tunnel(owner, await open_connection(owner.host, name, port))
    except OSError as error:  # includes timeouts
        raise channel_error(error) from error


async def open_connection(host: Host, name: str, port: int) -> socket.socket:
    """Return a connected socket inside the host."""
    end = await host.connect(await resolve_name(host, name), port)
    try:
        await wait_until_connected(end)
    except BaseException:
        end.close()
        raise
    return end


async def open_unix_tunnel(owner: SessionOwner, path: str) -> Tunnel:
    """Connect to a unix socket inside the host."""
    try:
        return Tunnel(owner, await owner.host.connect_unix(path, owner.user))
    except OSError as error:
        raise channel_error(error) from error


def channel_error(error: OSError) -> asyncssh.ChannelOpenError:
    """Return the error for the client."""
    reason = error.strerror or str(error) or "no answer"
    return asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, reason)


async def resolve_name(host: Host, name: str) -> str:
    """Resolve a name by the host's /etc/hosts, the only names that a host knows."""
    if name.replace(".", "").isdigit() or ":" in name:
        return name
    known = find_address(await read_text(host, "/etc/hosts"), name)
    if known is None and name != "localhost":
        raise OSError(f"the host can't resolve {name}")
    return known or "127.0.0.1"


async def wait_until_connected(end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(end, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(end)
    error = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


class ReverseListener(asyncssh.SSHListener):
    """A port inside the host whose connections go to the client."""

    def __init__(
        self, listener: socket.socket, welcome: Callable[[socket.socket, Any], None]
    ) -> None:
        super().__init__()
        self.listener = listener
        self.acceptor = Acceptor(listener, welcome)

    def get_port(self) -> int:
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        self.acceptor.stop()
        self.listener.close()

    async def wait_closed(self) -> None:
        """Do nothing: it is closed at once."""


async def open_reverse_listener(
    owner: SessionOwner, connection: asyncssh.SSHServerConnection, name: str, port: int
) -> ReverseListener:
    """Listen inside the host on loopback only, which is sshd's default."""
    listener = await owner.host.open_listener("127.0.0.1", port)
    asked = port or int(listener.getsockname()[1])

    async def call_home(end: socket.socket, origin: tuple[str, int]) -> None:
        make: Callable[[], Tunnel] = lambda: Tunnel(owner, end)  # noqa: E731
        try:
            await connection.create_connection(make, name, asked, origin[0], origin[1])
        except (asyncssh.Error, OSError):
            end.close()

    def welcome(end: socket.socket, origin: tuple[str, int]) -> None:
        owner.start_task(call_home(end, origin))

    return ReverseListener(listener, welcome)
