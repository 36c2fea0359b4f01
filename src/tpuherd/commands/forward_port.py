"""Forwards connections from a port of this machine to a port of a target's host.

Each connection finds the host anew, so after a preemption the same address leads to the new node.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

import asyncssh

from tpuherd.commands.command_types import label_hosts, resolve_hosts
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.peer_uid import can_tell, is_stranger
from tpuherd.ports import Host

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess

LOOPBACK = "127.0.0.1"
OPEN_TO_USERS = (
    "this machine does not show which user makes a connection: any user of it can use the port"
)
FRESH_S = 5.0  #: connections in quick succession go to the same host
PIECE = 1 << 16


class ByteReader(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class ByteWriter(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...


Tunnel = tuple[ByteReader, ByteWriter]


@dataclass(kw_only=True, slots=True)
class FirstHost:
    """The first host of a target, wherever it is now."""

    target: str
    place: "ProjectAccess"
    reach: "RemoteSession"
    _found: Host | None = None
    _found_at: float = -inf

    async def find(self) -> Host:
        now = self.reach.clock.now()
        if self._found is None or now > self._found_at + FRESH_S:
            self._found = (await resolve_hosts(self.target, self.place, self.reach))[0]
            self._found_at = now
        return self._found

    async def connect(self) -> Host:
        """Return the host once it is connected; the error names it."""
        host = await self.find()
        with self._naming(host):
            await self.reach.pool.get_link(host)
        return host

    async def open_tunnel(self, port: int) -> Tunnel:
        """Connect to a port of the host; if that fails, the next call asks where the host is."""
        host = await self.find()
        with self._naming(host):
            return await self.reach.pool.open_tunnel(host, port)

    @contextmanager
    def _naming(self, host: Host) -> Iterator[None]:
        try:
            yield
        except HerdError as error:
            self._found = None
            said = f"{label_hosts([host])[host]}: {error.sentence}"
            raise type(error)(said, hint=error.hint) from error


@dataclass(kw_only=True, slots=True)
class PortForward:
    """Accepts connections here and passes each on by a tunnel of its own."""

    title: str  #: what answers: port 8000 of srv
    open_tunnel: Callable[[], Awaitable[Tunnel]]
    tell: Callable[[str], Awaitable[None]]
    _is_broken: bool = False  #: the last connection was refused

    async def listen(self, local: int) -> asyncio.Server:
        """Accept connections of this user on this machine; InvalidInput if the port is taken."""
        try:
            server = await asyncio.start_server(self._accept, LOOPBACK, local)
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"port {local} of this machine can't be used",
                hint="choose another after a colon, or 0 for a free one",
            ) from error
        if not can_tell():
            await self.tell(OPEN_TO_USERS)
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_stranger(writer.get_extra_info("peername"), writer.get_extra_info("sockname")):
            writer.close()
            return
        try:
            far = await self.open_tunnel()
        except HerdError as error:
            writer.close()
            if not self._is_broken:
                self._is_broken = True
                await self.tell(f"{error.sentence}; each new connection tries again")
            return
        if self._is_broken:
            self._is_broken = False
            await self.tell(f"{self.title} answers again")
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
