"""Assembles a world and runs it until it is stopped.

`serve_world` restores the state (`persistence`), opens ports (`tcp_ports`), serves requests
(`live_world`, `http`) and runs hosts (`start_hosts`).
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tpuherd._version import __version__
from tpuherd.clock import Clock
from tpuherd.peer_uid import can_tell
from tpuherd_sim import state_dir, tcp_ports
from tpuherd_sim.client_files import write_client_files
from tpuherd_sim.handle import new_world
from tpuherd_sim.host_options import (
    NONE,
    STARTING,
    HostEnvironment,
    HostOptions,
    HostSetup,
    HostsRunner,
    WorldStatus,
)
from tpuherd_sim.hosts.machine_limits import raise_file_limit
from tpuherd_sim.http.app import create_app
from tpuherd_sim.http.certificates import ensure_certificates, tls_context
from tpuherd_sim.http.googleapis_proxy import serve_proxy
from tpuherd_sim.http.object_contents import OBJECTS, ObjectContents
from tpuherd_sim.http.server import serve_app
from tpuherd_sim.http.world_routes import world_routes
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Json, Request
from tpuherd_sim.model.world import World, log_entries_from, log_length
from tpuherd_sim.model.world_parts import LogEntry, Settings
from tpuherd_sim.persistence import RecoveredWorld, WorldStore
from tpuherd_sim.request_guard import BLIND, AccessGuard
from tpuherd_sim.state_dir import FORMAT, WorldError, WorldInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldOptions:
    """A user's options for a world. None and 0 keep the previous value, else the default."""

    folder: Path
    path: str  #: for finding programs such as ssh
    port: int = 0
    ssh_port: int = 0
    host_options: HostOptions = field(default_factory=HostOptions)
    seed: int | None = None
    project: str | None = None
    time_scale: float | None = None
    steps: tuple[Json, ...] = ()  #: the initial scenario


class WorldObserver(Protocol):
    """Receives what happens in a world."""

    def on_ready(
        self, facts: WorldInfo, recovered: RecoveredWorld | None, *, orderly: bool
    ) -> None:
        """The world responds. `recovered` is its previous state; `orderly` whether it was stopped
        properly.
        """
        ...

    def on_log_entry(self, note: LogEntry) -> None:
        """Something happened in the world."""
        ...

    def on_problem(self, sentence: str) -> None:
        """Something failed, but the world continues."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalEndpoints:
    """What a world uses of this machine."""

    rest: socket.socket
    tunnel: socket.socket
    network: int
    ssh_port: int


async def serve_world(
    options: WorldOptions,
    clock: Clock,
    observer: WorldObserver,
    load_runner: Callable[[], HostsRunner],
) -> None:
    """Run a world until SIGTERM or SIGINT. `load_runner` loads the code that runs hosts, which
    takes a while.
    """
    state_dir.prepare_folder(options.folder)
    raise_file_limit()
    with state_dir.lock_folder(options.folder), contextlib.ExitStack() as stack:
        before = state_dir.read_world_info(options.folder)
        state = WorldStore(options.folder)
        stack.callback(state.close)
        recovered = state.load()
        endpoints = stack.enter_context(reserve_endpoints(options, before, state.world))
        had = state.world and state.world.settings
        world = restore_or_create_world(options, state.world, endpoints.network, clock.now())
        if recovered is None or recovered.entries or recovered.torn or had != world.settings:
            save_first_snapshot(state, world)
        live_world = LiveWorld(world, clock, state)
        resume_world(live_world, options)
        orderly = before is None or before.pid is None
        facts = make_world_info(world, endpoints, clock.now())
        world_status = WorldStatus(facts=facts, setup=HostSetup(mode=STARTING))
        stop = install_stop_signals()
        try:
            async with (
                serve_requests(options, live_world, endpoints, world_status, (clock, observer)),
                provide_hosts(options, live_world, world_status, observer, load_runner),
            ):
                observer.on_ready(world_status.current_info(), recovered, orderly=orderly)
                await stop.wait()
        except BaseExceptionGroup as group:
            raise unwrap_world_error(group) from group
        finally:
            save_final_state(state, world, world_status, observer)


@contextlib.contextmanager
def reserve_endpoints(
    options: WorldOptions, before: WorldInfo | None, world: World | None
) -> Iterator[LocalEndpoints]:
    """Reserve ports and a network of this machine; release them at the end."""
    with contextlib.ExitStack() as stack:
        had = world.settings.network if world else None
        network, mark = tcp_ports.claim_network(options.folder, had)
        address = tcp_ports.HOME
        if mark is not None:
            stack.callback(mark.close)
            address = tcp_ports.MARK.format(network=network)
        rest = tcp_ports.bind_preferred_port(options.port, "--port", before.port if before else 0)
        stack.callback(rest.close)
        tunnel = tcp_ports.bind_preferred_port(0, "--port", before.tunnel_port if before else 0)
        stack.callback(tunnel.close)
        ssh = tcp_ports.choose_ssh_port(options.ssh_port, before.ssh_port if before else 0, address)
        yield LocalEndpoints(rest=rest, tunnel=tunnel, network=network, ssh_port=ssh)


def restore_or_create_world(
    options: WorldOptions, world: World | None, network: int, now: float
) -> World:
    """Return the previous world with the changed options, or a new one."""
    real = options.host_options.hosts != NONE
    if world is None:
        seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
        usual = Settings(seed=seed, network=network, real_hosts=real, created=now)
        scale, project = options.time_scale or usual.time_scale, options.project or usual.project
        return new_world(dataclasses.replace(usual, time_scale=scale, project=project))
    for name in ("seed", "project"):
        if getattr(options, name) not in (None, getattr(world.settings, name)):
            raise WorldError(
                f"The world in {options.folder} has the {name} {getattr(world.settings, name)}, "
                f"which can't be changed; omit --{name} or choose another --state-dir"
            )
    scale = options.time_scale or world.settings.time_scale
    world.settings = dataclasses.replace(world.settings, time_scale=scale, real_hosts=real)
    return world


def save_first_snapshot(state: WorldStore, world: World) -> None:
    """Write the first snapshot, without which nothing would be stored."""
    try:
        state.save(world)
    except OSError as error:
        raise WorldError(f"Can't write the world to {state.folder} ({error.strerror})") from error


def resume_world(live_world: LiveWorld, options: WorldOptions) -> None:
    """Power off the machines of the previous run and start a scenario."""
    event = "rebooted" if options.host_options.hosts != NONE else "up"
    for key, view in live_world.host_views().items():
        if view.on:
            live_world.handle_request(
                make_post_request(
                    f"/sim/v1/hosts/{key}:report", {"event": event, "boot": view.boot}
                )
            )
    if options.steps:
        live_world.handle_request(Request(method="DELETE", path="/sim/v1/scenario"))
        answer = live_world.handle_request(
            make_post_request("/sim/v1/scenario", {"steps": list(options.steps)})
        )
        if answer.status >= 400:
            raise WorldError(json.loads(answer.body)["error"]["message"])


def make_post_request(path: str, body: Json) -> Request:
    headers = {"content-type": "application/json"}
    return Request(method="POST", path=path, headers=headers, body=json.dumps(body).encode())


def make_world_info(world: World, endpoints: LocalEndpoints, now: float) -> WorldInfo:
    """Return the world's address; its hosts are not known yet."""
    port = endpoints.rest.getsockname()[1]
    return WorldInfo(
        format=FORMAT,
        version=__version__,
        url=f"http://127.0.0.1:{port}",
        port=port,
        ssh_port=endpoints.ssh_port,
        tunnel_port=endpoints.tunnel.getsockname()[1],
        network=endpoints.network,
        project=world.settings.project,
        project_number=world.settings.project_number,
        hosts=STARTING,
        missing=() if can_tell() else (BLIND,),
        started=now,
        pid=os.getpid(),
        time_scale=world.settings.time_scale,
    )


def make_access_guard(world_status: WorldStatus) -> AccessGuard:
    return AccessGuard(watches=BLIND not in world_status.facts.missing)


@contextlib.asynccontextmanager
async def serve_requests(
    options: WorldOptions,
    live_world: LiveWorld,
    endpoints: LocalEndpoints,
    world_status: WorldStatus,
    surroundings: tuple[Clock, WorldObserver],
) -> AsyncIterator[None]:
    """Serve requests and apply due events."""
    clock, observer = surroundings
    try:
        front = tls_context(ensure_certificates(options.folder / "tls", clock.now()))
        write_client_files(options.folder, world_status.facts, options.path)
        state_dir.write_world_info(options.folder, world_status.current_info())
    except OSError as error:
        raise WorldError(f"Can't write to {options.folder} ({error.strerror})") from error
    guard = make_access_guard(world_status)
    contents = ObjectContents(live_world, options.folder / OBJECTS)
    contents.clean_folder()
    world_app = create_app(live_world, clock, world_routes(live_world, world_status), contents)
    async with (
        asyncio.TaskGroup() as group,
        serve_app(world_app, endpoints.rest, guard, live_world.current_time),
        serve_proxy(endpoints.tunnel, front, world_status.facts.port, (guard, observer.on_problem)),
    ):
        lasting = [
            group.create_task(live_world.run()),
            group.create_task(follow_log(live_world, observer.on_log_entry)),
        ]
        try:
            yield
        finally:
            for task in lasting:
                task.cancel()


@contextlib.asynccontextmanager
async def provide_hosts(
    options: WorldOptions,
    live_world: LiveWorld,
    world_status: WorldStatus,
    observer: WorldObserver,
    load_runner: Callable[[], HostsRunner],
) -> AsyncIterator[None]:
    """Run hosts and publish their mode."""
    async with contextlib.AsyncExitStack() as stack:
        if options.host_options.hosts == NONE:
            world_status.setup = HostSetup()
        else:
            enter = await asyncio.to_thread(load_runner)
            port, tell = world_status.facts.ssh_port, observer.on_problem
            site = HostEnvironment(
                live_world=live_world,
                folder=options.folder,
                ssh_port=port,
                tell=tell,
                guard=make_access_guard(world_status),
            )
            world_status.setup = await stack.enter_async_context(enter(options.host_options, site))
        state_dir.write_world_info(options.folder, world_status.current_info())
        yield


def save_final_state(
    state: WorldStore, world: World, world_status: WorldStatus, observer: WorldObserver
) -> None:
    """Save the world, so that the next start has nothing to recover."""
    try:
        state.save(world)
        state_dir.write_world_info(
            state.folder, dataclasses.replace(world_status.current_info(), pid=None)
        )
    except OSError as error:
        observer.on_problem(f"could not write a snapshot ({error.strerror}); keeping the journal")


def unwrap_world_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the WorldError in the group, if there is one."""
    found: BaseException | None = group.subgroup(WorldError)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found or group


def install_stop_signals() -> asyncio.Event:
    """Return an event that is set when the world is to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def follow_log(live_world: LiveWorld, line: Callable[[LogEntry], None]) -> None:
    """Pass every new line of the log to `line`."""
    reported = log_length(live_world.world)
    while True:
        await live_world.wait_for_log_lines(reported)
        for note in log_entries_from(live_world.world, reported)[1]:
            line(note)
        reported = log_length(live_world.world)
