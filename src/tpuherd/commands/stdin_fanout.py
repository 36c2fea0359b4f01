"""Standard input for many hosts: each takes it at its own pace, and none runs far ahead."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tpuherd.errors import NotReached
from tpuherd.ports import Host
from tpuherd.remote.agent_channel import Call
from tpuherd_host.agent.frames import STDIN

PIECES_MAX = 64  #: of 64 KiB at most: how far the fastest is ahead of the slowest


class Input(Protocol):
    async def read(self) -> bytes:
        """Return the next piece; empty at the end."""
        ...


class ScriptInput:
    """A text that is known already."""

    def __init__(self, content: bytes) -> None:
        self._pieces = [content, b""]

    async def read(self) -> bytes:
        return self._pieces.pop(0)


class StdinFanout:
    """Reads an input once and hands it to all."""

    def __init__(self, source: Input, hosts: Iterable[Host]) -> None:
        self._source = source
        self._queues: dict[Host, asyncio.Queue[bytes]] = {
            host: asyncio.Queue(PIECES_MAX) for host in hosts
        }
        self._calls: dict[Host, Call] = {}
        self._written: set[Host] = set()  #: something was sent to these
        self._ended: set[Host] = set()  #: all was sent to these

    async def read_to_end(self) -> None:
        """Read until the end, or until no host wants more."""
        while self._queues:
            piece = await self._source.read()
            for queue in list(self._queues.values()):
                await queue.put(piece)
            if not piece:
                return

    async def feed(self, host: Host, call: Call) -> None:
        """One host's part."""
        self._calls[host] = call
        try:
            while host not in self._ended:
                queue = self._queues.get(host)
                if queue is None:
                    return
                piece = await queue.get()
                if not piece:
                    self._ended.add(host)
                    break
                self._written.add(host)
                await call.write(STDIN, piece)
            await call.send_eof(STDIN)
        except NotReached:
            pass  # the reader of the output gets the error, too

    def is_input_intact(self, host: Host) -> bool:
        """Whether nothing of the input was on its way when the host was cut off."""
        if host not in self._written:
            return True
        call = self._calls.get(host)
        return host in self._ended and (call is None or call.unacked_bytes == 0)

    def drop_host(self, host: Host) -> None:
        """The host wants no more input."""
        queue = self._queues.pop(host, None)
        while queue is not None and not queue.empty():
            queue.get_nowait()
