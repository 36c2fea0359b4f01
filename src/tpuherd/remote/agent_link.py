"""A link to one host's agent through an SSH channel."""

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
    """Forwards local ports to a host: an SSH connection."""

    def forward_local_port(
        self, listen_host: str, listen_port: int, dest_host: str, dest_port: int
    ) -> Awaitable[asyncssh.SSHListener]: ...


class AgentLink:
    """ports.Link to one host; many callers may share it."""

    def __init__(
        self, host: Host, hello: Mapping[str, Any], multiplexer: Multiplexer, tunnels: PortForwarder
    ) -> None:
        self.host = host
        self.hello = hello
        self.multiplexer = multiplexer
        self.tunnels = tunnels

    @property
    def alive(self) -> bool:
        """Whether it can be used, as far as we know."""
        return self.multiplexer.error is None

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        """Call a verb and return its reply."""
        async with self.open_stream(verb) as call:
            return await call.reply()

    def open_stream(self, verb: RpcRequest) -> AbstractAsyncContextManager[Call]:
        """Call a verb with byte streams in both directions."""
        return self.multiplexer.open_stream(verb)

    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """The events that the agent sends; ends with the link."""
        return self.multiplexer.iter_events()

    def disconnect(self, why: str) -> None:
        """Close the link; calls under way fail with this reason."""
        self.multiplexer.mark_broken(NotReached(why))
        self.multiplexer.wire.close()

    @asynccontextmanager
    async def forward_port(self, port: int) -> AsyncIterator[int]:
        """A local port that is forwarded to a port on the host's loopback interface."""
        if self.multiplexer.error is not None:
            raise self.multiplexer.error
        try:
            listener = await self.tunnels.forward_local_port(LOOPBACK, 0, LOOPBACK, port)
        except (OSError, asyncssh.Error) as error:
            raise NotReached(f"can't forward a port of {self.host.name}: {error}") from error
        try:
            yield listener.get_port()
        finally:
            listener.close()
            await asyncio.shield(listener.wait_closed())
