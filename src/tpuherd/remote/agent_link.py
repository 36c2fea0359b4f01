"""A link: the agent of one host, at the end of an SSH channel."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import asyncssh

from tpuherd.errors import NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.agent_channel import Call, Multiplexer

LOOPBACK = "127.0.0.1"


class PortForwarder(Protocol):
    """What makes local ports that lead to a host: an SSH connection."""

    def forward_local_port(
        self, listen_host: str, listen_port: int, dest_host: str, dest_port: int
    ) -> Awaitable[asyncssh.SSHListener]: ...


class AgentLink:
    """The Link to one host. Many may use it at the same time."""

    def __init__(
        self, host: Host, hello: Mapping[str, Any], lane: Multiplexer, tunnels: PortForwarder
    ) -> None:
        self.host = host
        self.hello = hello
        self.lane = lane
        self.tunnels = tunnels

    @property
    def alive(self) -> bool:
        """Whether it can be used, as far as is known."""
        return self.lane.error is None

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        """Ask and get the answer."""
        async with self.open_stream(verb) as call:
            return await call.reply()

    def open_stream(self, verb: RpcRequest) -> AbstractAsyncContextManager[Call]:
        """Ask, with bytes both ways."""
        return self.lane.open_stream(verb)

    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the agent has to say unasked; ends with the link."""
        return self.lane.iter_events()

    def disconnect(self, why: str) -> None:
        """Hang up."""
        self.lane.mark_broken(NotReached(why))
        self.lane.wire.close()

    @asynccontextmanager
    async def forward_port(self, port: int) -> AsyncIterator[int]:
        """A local port that leads to that port of the host's own loopback."""
        if self.lane.error is not None:
            raise self.lane.error
        try:
            listener = await self.tunnels.forward_local_port(LOOPBACK, 0, LOOPBACK, port)
        except (OSError, asyncssh.Error) as error:
            raise NotReached(f"no port of {self.host.name} can be brought here: {error}") from error
        try:
            yield listener.get_port()
        finally:
            listener.close()
            await asyncio.shield(listener.wait_closed())
