"""One connection of an SSH client to a host: authentication and channel requests."""

import asyncio
import socket
import struct
from collections.abc import Coroutine
from typing import Any, Protocol

import asyncssh

from tpuherd_sim.hosts.host_protocols import Host
from tpuherd_sim.ssh.bridge import Bridge
from tpuherd_sim.ssh.forwards import (
    ReverseListener,
    Tunnel,
    open_reverse_listener,
    open_tunnel,
    open_unix_tunnel,
)
from tpuherd_sim.ssh.session import Session

SESSIONS_MAX = 10  #: per connection, as in sshd (MaxSessions)
AT_ONCE = struct.pack("ii", 1, 0)  #: SO_LINGER value with which closing resets the connection


class ConnectionOwner(Protocol):
    """The address that the client connected to."""

    host: Host
    connections: set["ClientConnection"]

    @property
    def is_paused(self) -> bool:
        """Whether all transfer is paused."""
        ...

    async def may_log_in(self, user: str, public: bytes) -> bool: ...


class ClientConnection(asyncssh.SSHServer):
    def __init__(self, listener: ConnectionOwner) -> None:
        self.listener = listener
        self.host = listener.host
        self.user = ""
        self.bridges: set[Bridge] = set()
        self.sessions: list[Session] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.stranger = True  #: has not logged in yet

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.connection = conn
        client, here = conn.get_extra_info("peername"), conn.get_extra_info("sockname")
        self.ends = (client[0], client[1], here[0], here[1])
        self.listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener.connections.discard(self)
        for task in self.tasks:
            task.cancel()

    def begin_auth(self, username: str) -> bool:
        self.user = username
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return await self.listener.may_log_in(username, key.public_data)

    def auth_completed(self) -> None:
        self.stranger = False

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], Session] | bool:
        self.sessions = [one for one in self.sessions if not one.over]
        if len(self.sessions) >= SESSIONS_MAX:
            return False
        self.sessions.append(Session(self))
        return self.connection.create_server_channel(encoding=None), self.sessions[-1]

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Coroutine[Any, Any, Tunnel]:
        return open_tunnel(self, dest_host, dest_port)

    def unix_connection_requested(self, dest_path: str) -> Coroutine[Any, Any, Tunnel]:
        return open_unix_tunnel(self, dest_path)

    def server_requested(
        self, listen_host: str, listen_port: int
    ) -> Coroutine[Any, Any, ReverseListener]:
        return open_reverse_listener(self, self.connection, listen_host, listen_port)

    def start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task that ends with the connection; errors of a host that dies are ignored."""
        task = asyncio.create_task(run_quietly(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def add_bridge(self, bridge: Bridge) -> None:
        self.bridges.add(bridge)
        if self.listener.is_paused:
            bridge.pause_transfer()

    def remove_bridge(self, bridge: Bridge) -> None:
        self.bridges.discard(bridge)

    def pause_transfer(self) -> None:
        # asyncssh has no API for this; its connection is an asyncio protocol with a transport.
        transport = self.connection._transport
        if transport is not None:
            transport.pause_reading()
        for bridge in self.bridges:
            bridge.pause_transfer()

    def resume_transfer(self) -> None:
        transport = self.connection._transport
        if transport is not None:
            transport.resume_reading()
        for bridge in self.bridges:
            bridge.resume_transfer()

    def reset_connection(self) -> None:
        """Reset the connection, as if its machine had disappeared."""
        end = self.connection.get_extra_info("socket")
        if end is not None:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.connection.abort()


async def run_quietly(work: Coroutine[Any, Any, None]) -> None:
    """Run a task; ignore errors because the host or the client is gone."""
    try:
        await work
    except (OSError, asyncssh.Error):
        return
