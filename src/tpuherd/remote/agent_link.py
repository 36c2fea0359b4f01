"""A link to one host's agent through an SSH channel."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from tpuherd.errors import NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.agent_channel import Call, Multiplexer


class AgentLink:
    """ports.Link to one host; many callers may share it."""

    def __init__(self, host: Host, hello: Mapping[str, Any], multiplexer: Multiplexer) -> None:
        self.host = host
        self.hello = hello
        self.multiplexer = multiplexer

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
