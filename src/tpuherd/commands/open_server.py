"""Starts servers on hosts for `herd open`, finds those that run, and leads connections to them.

A server is a command of the agent's with a fixed id, so that it outlives connections, can be listed
(`herd exec --list`), and is there once. On the node after a preemption it is started anew, with the
same token, at the first connection.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from tpuherd.clock import Clock
from tpuherd.commands.command_types import label_hosts
from tpuherd.commands.forward_port import FirstHost, Tunnel
from tpuherd.commands.host_script import run_on_host
from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd.ports import Host, Link, RpcRequest
from tpuherd_host.agent.frames import LOG, STDERR, STDIN, STDOUT
from tpuherd_host.agent.log_records import RecordReader

START_S = 90.0  #: for a server to answer
LOOK_S = 0.3
STOP_GRACE_S = 10.0
KEEP_S = 86_400.0
LINES = 3
LIVE = frozenset(("waiting", "starting", "running"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOrder:
    """Which server to open."""

    program: str  #: one of open_server.py's on the host
    folder: str  #: what it shows: an absolute path on the host, or a bucket
    token: str = ""  #: "" for a new one

    @property
    def id(self) -> str:
        """Of the agent's command."""
        return f"open-{self.program}"

    @property
    def title(self) -> str:
        return f"the {self.program} server"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenServer:
    """A server that answers on its host."""

    port: int
    token: str
    folder: str
    started: bool  #: now, by us


async def ensure_server(order: ServerOrder, link: Link, clock: Clock) -> OpenServer:
    """Return the host's server, started if none runs; OperationFailed says why it did not start."""
    task = await find_task(order, link)
    if task is not None and task["phase"] in LIVE:
        return await wait_for_server(order, link, clock, started=False)
    if task is not None:
        await link.call(RpcRequest(name="forget", arguments={"id": order.id}))
    asked = {
        "id": order.id,
        "argv": ["python3", "-", "serve", order.program, order.folder],
        "env": {"HERD_OPEN_TOKEN": order.token},
        "stdin": True,
        "keep_s": KEEP_S,
        "hold": False,
    }
    async with link.open_stream(RpcRequest(name="run", arguments=asked)) as call:
        await call.write(STDIN, host_program())
        await call.send_eof(STDIN)
        return await wait_for_server(order, link, clock, started=True)


async def wait_for_server(
    order: ServerOrder, link: Link, clock: Clock, *, started: bool
) -> OpenServer:
    """Return the server once it answers."""
    end = clock.now() + START_S
    while (found := await look_for_server(order, link)) is None:
        task = await find_task(order, link)
        if task is None or task["phase"] not in LIVE:
            raise OperationFailed(await read_last_lines(order, link) or f"{order.title} ended")
        if clock.now() > end:
            raise NotReached(
                f"{order.title} did not answer within {START_S:g} s",
                hint=f"herd exec --attach {order.id} shows its output",
            )
        await clock.sleep(LOOK_S)
    return OpenServer(
        port=int(found["port"]),
        token=str(found["token"]),
        folder=str(found["folder"]),
        started=started,
    )


async def find_task(order: ServerOrder, link: Link) -> Mapping[str, Any] | None:
    """Return what the agent knows of the server's command."""
    reply = await link.call(RpcRequest(name="commands"))
    found: list[Mapping[str, Any]] = reply["commands"]
    return next((one for one in found if one["id"] == order.id), None)


async def look_for_server(order: ServerOrder, link: Link) -> Mapping[str, Any] | None:
    """Return the server's record on the host, if it answers."""
    done = await run_on_host(link, ("python3", "-", "look", order.program), host_program())
    try:
        found = json.loads(done.out) if done.status == 0 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"port", "token", "folder"} <= set(found) else None


async def stop_server(order: ServerOrder, link: Link) -> bool:
    """Stop the host's server; whether one ran."""
    task = await find_task(order, link)
    if task is None or task["phase"] not in LIVE:
        return False
    asked = {"id": order.id, "grace_s": STOP_GRACE_S, "why": "its user stopped it"}
    await link.call(RpcRequest(name="stop", arguments=asked))
    return True


async def read_last_lines(order: ServerOrder, link: Link) -> str:
    """Return the last lines of the server's output as one sentence."""
    reader, text = RecordReader(), b""
    asked = {"id": order.id, "hold": False}
    try:
        async with link.open_stream(RpcRequest(name="attach", arguments=asked)) as call:
            while (got := await call.read()) is not None:
                for record in reader.feed(got[1]) if got[0] == LOG else ():
                    if record.port in (STDOUT, STDERR):
                        text += record.piece
    except HerdError:
        pass  # what came so far is all there is
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return " ".join(lines[-LINES:])


def host_program() -> bytes:
    return files("tpuherd_host").joinpath("open_server.py").read_bytes()


@dataclass(kw_only=True, slots=True)
class ServedTarget:
    """The server on a target's first host, wherever that is now."""

    order: ServerOrder
    first: FirstHost
    server: OpenServer | None = None
    _host: Host | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self) -> OpenServer:
        """Return the server, started if none runs."""
        async with self._starting:
            host = await self.first.connect()
            if self.server is None or host != self._host:
                link = await self.first.reach.pool.get_link(host)
                token = self.order.token if self.server is None else self.server.token
                order = replace(self.order, token=token)  # its address here stays the same
                try:
                    self.server = await ensure_server(order, link, self.first.reach.clock)
                except HerdError as error:
                    said = f"{label_hosts([host])[host]}: {error.sentence}"
                    raise type(error)(said, hint=error.hint) from error
                self._host = host
            return self.server

    async def open_tunnel(self) -> Tunnel:
        """Connect to the server; one that no longer answers is started again, once."""
        server = await self.open()
        try:
            return await self.first.open_tunnel(server.port)
        except HerdError:
            self._host = None
        server = await self.open()
        return await self.first.open_tunnel(server.port)

    async def stop(self) -> bool:
        """Stop the server on the present host; whether one ran."""
        host = await self.first.connect()
        return await stop_server(self.order, await self.first.reach.pool.get_link(host))
