"""Hosts whose agents are threads of the test (real methods, files and relays, no SSH), and a rig
that ships to them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tpuherd.errors import NotReached, OperationFailed
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.agent_channel import ERRORS
from tpuherd.sync.ship import DEFAULT_OPTIONS, Shipment, ShipOptions, ship
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import Snapshot, snapshot_folder
from tpuherd_host.agent.frames import WINDOW
from tpuherd_host.agent.state_machine.messages import Event, ThreadAnswered, ThreadRead, ThreadSent
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.threaded_methods import THREADED
from tpuherd_host.agent.threaded_rpc import AgentPaths, ThreadedCall, start_thread

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class NearHost:
    """A host: a home folder, and a Link to what runs for it."""

    def __init__(self, folder: Path, worker: int) -> None:
        self.home = folder / f"w{worker}"
        self.home.mkdir(parents=True)
        self.host = Host(
            node="pod",
            zone="us-central2-b",
            worker=worker,
            incarnation="1",
            internal_ip="127.0.0.1",
            external_ip=None,
        )
        self.hello: Mapping[str, Any] = {}
        self.house = str(self.home / ".tpuherd")
        self.up = 0  #: bytes that came over its own link
        self.cut_after: int | None = None  #: the link breaks after this many bytes up
        self.dead: set[str] = set()  #: verbs that never answer: the host hangs
        self.lost: set[str] = set()  #: verbs whose next answer is lost, though they are done
        self.down = False
        self.passing: Callable[[bytes], bytes] = lambda piece: piece  #: what it gives, on its way

    def __str__(self) -> str:
        return self.host.name

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        async with self.open_stream(verb) as stream:
            return await stream.reply()

    @asynccontextmanager
    async def open_stream(self, verb: RpcRequest) -> AsyncIterator["NearStream"]:
        if self.down:
            raise NotReached(f"{self} is down")
        stream = NearStream(self, verb)
        try:
            yield stream
        finally:
            stream.threaded_call.cancel()

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        nothing: tuple[Mapping[str, Any], ...] = ()
        for event in nothing:
            yield event

    def disconnect(self, why: str) -> None:
        """There is no line that could be cut."""


class NearStream:
    """A call of a threaded verb."""

    def __init__(self, host: NearHost, verb: RpcRequest) -> None:
        self.host = host
        self.verb = verb
        self.loop = asyncio.get_running_loop()
        self.come: asyncio.Queue[Event] = asyncio.Queue()
        self.credit = WINDOW
        self.more = asyncio.Event()
        self.over = asyncio.Event()  #: the host's side has ended
        self.answer: ThreadAnswered | None = None
        house = AgentPaths(host.house, str(host.home), {}, AgentState, self.post)
        self.threaded_call = ThreadedCall(house, dict(verb.arguments), 1, 1)
        if verb.name not in host.dead:
            start_thread(THREADED[verb.name], self.threaded_call)

    def post(self, event: Event) -> None:
        try:
            self.loop.call_soon_threadsafe(self.happen, event)
        except RuntimeError:
            pass  # the test is over

    def happen(self, event: Event) -> None:
        if isinstance(event, ThreadRead):
            self.credit += event.many
            self.more.set()
        else:
            if isinstance(event, ThreadAnswered):
                self.over.set()
                self.more.set()
            self.come.put_nowait(event)

    async def read(self) -> tuple[int, bytes] | None:
        while self.answer is None:
            event = await self.come.get()
            if isinstance(event, ThreadAnswered):
                self.answer = event
            elif isinstance(event, ThreadSent) and not event.last:
                piece = self.host.passing(event.piece)
                self.threaded_call.add_credit(len(event.piece))
                return event.port, piece
        return None

    async def write(self, port: int, piece: bytes) -> None:
        if self.host.cut_after is not None and self.host.up + len(piece) > self.host.cut_after:
            await self.cut()
            raise NotReached(f"{self.host} was cut")
        while self.credit < len(piece) and self.credit < WINDOW:
            self.more.clear()
            await self.more.wait()
        self.credit -= len(piece)
        self.host.up += len(piece)
        self.threaded_call.add_piece(port, piece)

    async def cut(self) -> None:
        """The line breaks, once the host has taken in all that went over it; then the call ends."""
        self.host.down = True
        if self.verb.name not in self.host.dead:
            # Its credit does not tell: the host may grant more than the window.
            while (
                any(piece for _, piece in tuple(self.threaded_call.pieces))
                and not self.over.is_set()
            ):
                self.more.clear()
                await self.more.wait()
        self.threaded_call.cancel()
        if self.verb.name not in self.host.dead:
            await self.over.wait()

    async def send_eof(self, port: int) -> None:
        self.threaded_call.add_piece(port, None)

    async def reply(self) -> Mapping[str, Any]:
        while await self.read() is not None:
            pass
        assert self.answer is not None
        if self.verb.name in self.host.lost:
            self.host.lost.discard(self.verb.name)
            raise NotReached(f"{self.host} was cut")
        if self.answer.error:
            kind = ERRORS.get(self.answer.error, OperationFailed)
            raise kind(str(self.answer.content["sentence"]))
        return self.answer.content


class ShipRig:
    """A user's side: a folder and the archive."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.code.mkdir()
        self.archive = Archive(folder / "archive")

    def shot(self) -> Snapshot:
        return snapshot_folder(self.code, self.archive, ENVIRONMENT)

    def ship(
        self, hosts: Sequence[NearHost], dest: str = "c", options: ShipOptions = DEFAULT_OPTIONS
    ) -> Shipment:
        return asyncio.run(ship(self.shot(), dest, hosts, archive=self.archive, options=options))


def herd(folder: Path, many: int) -> list[NearHost]:
    """This many hosts."""
    return [NearHost(folder, worker) for worker in range(many)]


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """All of a folder: kind and content by path."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsencode(path.relative_to(folder)).decode(errors="backslashreplace")
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            executable = path.stat().st_mode & 0o100
            found[name] = ("program" if executable else "file", path.read_bytes())
    return found


def write(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Files by path; None is not one of them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
