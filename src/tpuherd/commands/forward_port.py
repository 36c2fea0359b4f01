"""Forwards connections from a port of this machine to a port of a target's host.

Each connection finds the host anew, so after a preemption the same address leads to the new node.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

import asyncssh

from tpuherd.commands.command_types import resolve_hosts
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.ports import Host

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess

LOOPBACK = "127.0.0.1"
FRESH_S = 5.0  #: connections in quick succession go to the same host
PIECE = 1 << 16


class ByteReader(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class ByteWriter(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...


@dataclass(kw_only=True, slots=True)
class PortForward:
    """The first host of a target, and how to tell the user that it can't be reached."""

    target: str
    port: int
    place: "ProjectAccess"
    reach: "RemoteSession"
    tell: Callable[[str], Awaitable[None]]
    _found: Host | None = None
    _found_at: float = -inf
    _is_broken: bool = False  #: the last connection was refused

    async def listen(self, local: int) -> asyncio.Server:
        """Accept connections on this machine only; InvalidInput if the port is taken."""
        try:
            return await asyncio.start_server(self._accept, LOOPBACK, local)
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"port {local} of this machine can't be used", hint="choose another with --local"
            ) from error

    async def find_host(self) -> Host:
        """Return the first host of the target now."""
        now = self.reach.clock.now()
        if self._found is None or now > self._found_at + FRESH_S:
            self._found = (await resolve_hosts(self.target, self.place, self.reach))[0]
            self._found_at = now
        return self._found

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host = await self.find_host()
            far = await self.reach.pool.open_tunnel(host, self.port)
        except HerdError as error:
            self._found = None
            writer.close()
            if not self._is_broken:
                self._is_broken = True
                await self.tell(f"{error.sentence}; each new connection tries again")
            return
        if self._is_broken:
            self._is_broken = False
            await self.tell(f"{host.name} answers on port {self.port}")
        await asyncio.gather(copy_bytes(reader, far[1]), copy_bytes(far[0], writer))
        for end in (far[1], writer):
            end.close()


async def copy_bytes(source: ByteReader, sink: ByteWriter) -> None:
    """Copy until the end; if one side is lost, both end."""
    try:
        while piece := await source.read(PIECE):
            sink.write(piece)
            await sink.drain()
        sink.write_eof()
    except (OSError, asyncssh.Error):
        with suppress(OSError, asyncssh.Error):
            sink.close()
