"""Puts a world together and lets it run until somebody ends it."""

import asyncio
import contextlib
import dataclasses
import json
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tpuherd._version import __version__
from tpuherd.clock import Clock
from tpuherd_sim import state_dir, tcp_ports
from tpuherd_sim.client_files import furnish
from tpuherd_sim.handle import new_world
from tpuherd_sim.host_options import NONE, STARTING, Board, Lodged, Lodging, Site, Wish
from tpuherd_sim.http.app import app
from tpuherd_sim.http.certificates import certificates, context
from tpuherd_sim.http.googleapis_proxy import tunnelling
from tpuherd_sim.http.server import serving
from tpuherd_sim.http.world_routes import sides
from tpuherd_sim.live_world import Desk
from tpuherd_sim.model.http_types import Json, Request
from tpuherd_sim.model.world import World, lines_from, written
from tpuherd_sim.model.world_parts import Note, Settings
from tpuherd_sim.peer_uid import can_tell
from tpuherd_sim.persistence import Recovered, State
from tpuherd_sim.request_guard import BLIND, Doorkeeper
from tpuherd_sim.state_dir import FORMAT, Facts, Trouble

FILES_MAX = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a user can say about a world. None and 0: as it was before, else what is usual."""

    folder: Path
    path: str  #: where programs such as ssh are looked for
    port: int = 0
    ssh_port: int = 0
    wish: Wish = field(default_factory=Wish)
    seed: int | None = None
    project: str | None = None
    time_scale: float | None = None
    steps: tuple[Json, ...] = ()  #: a scenario to begin with


class Audience(Protocol):
    """Who is told what happens."""

    def ready(self, facts: Facts, recovered: Recovered | None, *, orderly: bool) -> None:
        """The world answers. `recovered` is what it goes on with; it ended in order, or not."""
        ...

    def line(self, note: Note) -> None:
        """Something happened in the world."""
        ...

    def trouble(self, sentence: str) -> None:
        """Something is not as it should be, and the world goes on all the same."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What a world has of this machine."""

    rest: socket.socket
    tunnel: socket.socket
    network: int
    ssh_port: int


async def serve(
    options: Options, clock: Clock, audience: Audience, lodged: Callable[[], Lodged]
) -> None:
    """Run a world until SIGTERM or SIGINT. `lodged` loads what runs hosts, which takes a while."""
    state_dir.prepare(options.folder)
    many_files()
    with state_dir.taken(options.folder), contextlib.ExitStack() as stack:
        before = state_dir.read_facts(options.folder)
        state = State(options.folder)
        stack.callback(state.close)
        recovered = state.load()
        ground = stack.enter_context(grounded(options, before, state.world))
        had = state.world and state.world.settings
        world = settled(options, state.world, ground.network, clock.now())
        if recovered is None or recovered.entries or recovered.torn or had != world.settings:
            save(state, world)
        desk = Desk(world, clock, state)
        begin(desk, options)
        orderly = before is None or before.pid is None
        facts = place(world, ground, clock.now())
        board = Board(facts=facts, lodging=Lodging(mode=STARTING))
        stop = listen()
        try:
            async with (
                answering(options, desk, ground, board, (clock, audience)),
                housed(options, desk, board, audience, lodged),
            ):
                audience.ready(board.now(), recovered, orderly=orderly)
                await stop.wait()
        except BaseExceptionGroup as group:
            raise bare(group) from group
        finally:
            leave(state, world, board, audience)


@contextlib.contextmanager
def grounded(options: Options, before: Facts | None, world: World | None) -> Iterator[Ground]:
    """Take ports and a network of this machine, and give them back at the end."""
    with contextlib.ExitStack() as stack:
        had = world.settings.network if world else None
        network, mark = tcp_ports.claim(options.folder, had)
        address = tcp_ports.HOME
        if mark is not None:
            stack.callback(mark.close)
            address = tcp_ports.MARK.format(network=network)
        rest = tcp_ports.favourite(options.port, "--port", before.port if before else 0)
        stack.callback(rest.close)
        tunnel = tcp_ports.favourite(0, "--port", before.tunnel_port if before else 0)
        stack.callback(tunnel.close)
        ssh = tcp_ports.ssh_port(options.ssh_port, before.ssh_port if before else 0, address)
        yield Ground(rest=rest, tunnel=tunnel, network=network, ssh_port=ssh)


def settled(options: Options, world: World | None, network: int, now: float) -> World:
    """The world of before with what is asked otherwise now, or a new one."""
    real = options.wish.hosts != NONE
    if world is None:
        seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
        usual = Settings(seed=seed, network=network, real_hosts=real, created=now)
        scale, project = options.time_scale or usual.time_scale, options.project or usual.project
        return new_world(dataclasses.replace(usual, time_scale=scale, project=project))
    for name in ("seed", "project"):
        if getattr(options, name) not in (None, getattr(world.settings, name)):
            raise Trouble(
                f"The world in {options.folder} has the {name} {getattr(world.settings, name)}, "
                f"once for all: leave --{name} away, or name another --state-dir"
            )
    scale = options.time_scale or world.settings.time_scale
    world.settings = dataclasses.replace(world.settings, time_scale=scale, real_hosts=real)
    return world


def save(state: State, world: World) -> None:
    """The first snapshot: without one nothing would be kept."""
    try:
        state.save(world)
    except OSError as error:
        raise Trouble(f"The world can't be written to {state.folder} ({error.strerror})") from error


def begin(desk: Desk, options: Options) -> None:
    """The machines of the last time are off, and a scenario begins."""
    event = "rebooted" if options.wish.hosts != NONE else "up"
    for key, view in desk.views().items():
        if view.on:
            desk.handle(post(f"/sim/v1/hosts/{key}:report", {"event": event, "boot": view.boot}))
    if options.steps:
        desk.handle(Request(method="DELETE", path="/sim/v1/scenario"))
        answer = desk.handle(post("/sim/v1/scenario", {"steps": list(options.steps)}))
        if answer.status >= 400:
            raise Trouble(json.loads(answer.body)["error"]["message"])


def post(path: str, body: Json) -> Request:
    """A request of our own."""
    headers = {"content-type": "application/json"}
    return Request(method="POST", path=path, headers=headers, body=json.dumps(body).encode())


def place(world: World, ground: Ground, now: float) -> Facts:
    """Where this world is; what its hosts are is not known yet."""
    port = ground.rest.getsockname()[1]
    return Facts(
        format=FORMAT,
        version=__version__,
        url=f"http://127.0.0.1:{port}",
        port=port,
        ssh_port=ground.ssh_port,
        tunnel_port=ground.tunnel.getsockname()[1],
        network=ground.network,
        project=world.settings.project,
        project_number=world.settings.project_number,
        hosts=STARTING,
        missing=() if can_tell() else (BLIND,),
        started=now,
        pid=os.getpid(),
    )


def doorkeeper_of(board: Board) -> Doorkeeper:
    """Who says who may come in."""
    return Doorkeeper(watches=BLIND not in board.facts.missing)


@contextlib.asynccontextmanager
async def answering(
    options: Options, desk: Desk, ground: Ground, board: Board, outside: tuple[Clock, Audience]
) -> AsyncIterator[None]:
    """Answer, and let time pass."""
    clock, audience = outside
    try:
        front = context(certificates(options.folder / "tls", clock.now()))
        furnish(options.folder, board.facts, options.path)
        state_dir.write_facts(options.folder, board.now())
    except OSError as error:
        raise Trouble(f"Nothing can be written to {options.folder} ({error.strerror})") from error
    doorkeeper = doorkeeper_of(board)
    world_app = app(desk, clock, sides(desk, board, options.folder))
    async with (
        asyncio.TaskGroup() as group,
        serving(world_app, ground.rest, doorkeeper, desk.now),
        tunnelling(ground.tunnel, front, board.facts.port, (doorkeeper, audience.trouble)),
    ):
        lasting = [group.create_task(desk.run()), group.create_task(follow(desk, audience.line))]
        try:
            yield
        finally:
            for task in lasting:
                task.cancel()


@contextlib.asynccontextmanager
async def housed(
    options: Options, desk: Desk, board: Board, audience: Audience, lodged: Callable[[], Lodged]
) -> AsyncIterator[None]:
    """Have hosts, and say which."""
    async with contextlib.AsyncExitStack() as stack:
        if options.wish.hosts == NONE:
            board.lodging = Lodging()
        else:
            enter = await asyncio.to_thread(lodged)
            port, tell = board.facts.ssh_port, audience.trouble
            site = Site(
                desk=desk,
                folder=options.folder,
                ssh_port=port,
                tell=tell,
                doorkeeper=doorkeeper_of(board),
            )
            board.lodging = await stack.enter_async_context(enter(options.wish, site))
        state_dir.write_facts(options.folder, board.now())
        yield


def leave(state: State, world: World, board: Board, audience: Audience) -> None:
    """Write the world down, so that the next start has nothing to recover."""
    try:
        state.save(world)
        state_dir.write_facts(state.folder, dataclasses.replace(board.now(), pid=None))
    except OSError as error:
        audience.trouble(f"no snapshot could be written ({error.strerror}): the journal stays")


def bare(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The trouble in it, if there is one."""
    found: BaseException | None = group.subgroup(Trouble)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found or group


def many_files() -> None:
    """A host takes six descriptors and a login four more: as many as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def listen() -> asyncio.Event:
    """Set when somebody wants the world to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def follow(desk: Desk, line: Callable[[Note], None]) -> None:
    """Tell what happens as it happens."""
    told = written(desk.world)
    while True:
        await desk.logged(told)
        for note in lines_from(desk.world, told)[1]:
            line(note)
        told = written(desk.world)
