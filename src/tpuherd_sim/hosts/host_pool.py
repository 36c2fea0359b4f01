"""Runs the hosts of a world: starts, changes and ends them, and reports what happened to the world.

`apply_views` compares the wanted hosts with the running ones and starts a task for each difference.
Hosts are started by the zygote (`zygote`); a running one is a `RunningHost`.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tpuherd_sim.hosts.boot_config import make_boot_config
from tpuherd_sim.hosts.channel import Channel, int_field
from tpuherd_sim.hosts.host_protocols import Host, WorldApi
from tpuherd_sim.hosts.isolation_modes import MODES, refusal_sentence
from tpuherd_sim.hosts.machine_limits import boot_error_reason
from tpuherd_sim.hosts.messages import Message
from tpuherd_sim.hosts.running_host import RunningHost
from tpuherd_sim.hosts.sftp_server import find_program
from tpuherd_sim.hosts.shared_folders import closed_folders, shared_folders
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import Request

BOOT_S, DEATH_S = 60.0, 20.0
BOOTS_MAX = 32  #: at the same time: BOOT_S is for one boot, not for those before it
UNAVAILABLE = 503
AGAIN_S = 1.0  #: until the next attempt to report an event that the world could not store
DISK_BYTES = 4 << 30
NO_ENVIRONMENT: dict[str, str] = {}

Services = Callable[[Host, WorldApi], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def no_services(_: Host, __: WorldApi) -> AsyncIterator[None]:
    """Run no services."""
    yield


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """How to make the hosts of a world."""

    services: Services = no_services  #: what runs for a host while it is up
    offers: tuple[Path, ...] = ()  #: folders (virtual environments) seen inside, at the same path
    mode: str | None = None  #: one of MODES; by default the best possible
    disk_bytes: int = DISK_BYTES


@dataclass(kw_only=True, slots=True)
class PoolEntry:
    """A host's entry, which exists as long as its node."""

    number: int
    segment: str = ""  #: of its last boot
    target: HostView | None = None
    running: RunningHost | None = None
    ended: int | None = None  #: the boot that ended by itself; not started again
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class HostPool:
    """Holds the zygote and all running hosts."""

    def __init__(self, world_api: WorldApi, folder: Path, make: PoolSettings | None = None) -> None:
        self.world_api = world_api
        self.folder = folder
        self.make = make or PoolSettings()
        self.mode = ""
        self.missing: list[str] = []  #: features that this machine lacks, in sentences
        self.hosts: dict[str, Host] = {}
        self.entries: dict[str, PoolEntry] = {}
        self.made = 0
        self.boots = asyncio.Semaphore(BOOTS_MAX)
        self.peers: dict[str, tuple[tuple[str, str], ...]] = {}  #: by segment: as the zygote knows
        self.zygote: subprocess.Popen[bytes] | None = None
        self.line: Channel | None = None
        self.reviving = asyncio.Lock()
        self.closing = asyncio.Event()
        self.lives: asyncio.TaskGroup | None = None
        self.lives_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Try the modes from best to worst and keep the first that works."""
        ready = asyncio.Event()
        self.lives_task = asyncio.create_task(self.run_task_group(ready))
        await ready.wait()
        best = MODES if os.getuid() == 0 else MODES[1:]
        for mode in (self.make.mode,) if self.make.mode else best:
            self.mode = mode
            try:
                await self.ensure_zygote()
                await self.boot_trial_host()
            except OSError as error:
                self.missing.append(refusal_sentence(mode, error))
                await self.end_zygote()
            else:
                self.name_closed_offers()
                return
        await self.close()
        raise OSError(1, "hosts can't run here: " + "; ".join(self.missing))

    def name_closed_offers(self) -> None:
        """Record which offered folders hosts can't read: as processes of root's world, they are
        another user's.
        """
        if self.mode != "processes" or os.getuid() != 0:
            return
        for folder in closed_folders(shared_folders(*self.make.offers)):
            self.note_problem(
                f"hosts run as another user here and can't read what is offered in {folder}: "
                f"`chmod o+x {folder}`, or offer an environment that lies elsewhere"
            )

    async def run_task_group(self, ready: asyncio.Event) -> None:
        """The parent of all tasks that belong to hosts."""
        async with asyncio.TaskGroup() as self.lives:
            ready.set()
            await self.closing.wait()

    async def ensure_zygote(self) -> Channel:
        """Return the channel to the zygote; start one if none is running."""
        async with self.reviving:
            if self.line is not None:
                return self.line
            self.folder.mkdir(parents=True, exist_ok=True)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            launch = Path(__file__).with_name("start_zygote.py")
            with theirs:
                self.zygote = subprocess.Popen(  # noqa: ASYNC220  # starts in a millisecond
                    [sys.executable, "-I", "-S", str(launch), str(os.getpid())],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=NO_ENVIRONMENT,
                )
            line = Channel(ours, self.on_host_died, self.on_zygote_died)
            order = {
                "mode": self.mode,
                "folder": str(self.folder.absolute()),
                "disk_bytes": self.make.disk_bytes,
                "offers": shared_folders(*self.make.offers),
                "libraries": [] if find_program() else [path for path in sys.path if path],
            }
            try:
                await line.send_request("prepare", order, within_s=BOOT_S)
            except OSError:
                line.close()
                raise
            self.line = line
            return line

    async def boot_trial_host(self) -> None:
        """Boot a host as a test, and end it."""
        view = HostView(
            key="trial", zone="", node="", worker=0, name="trial", uid=0, image="",
            accelerator="v4-8", chips=1, device="accel", pci="0x005e", internal_ip="10.0.0.2",
            external_ip=None, segment="trial", peers=(("trial", "10.0.0.2"),), on=True, boot=0,
        )  # fmt: skip
        entry = PoolEntry(number=self.next_number(), target=view)
        self.entries[view.key] = entry
        try:
            running = await self.start_host(entry, view)
            async with asyncio.timeout(BOOT_S):
                await running.up
            await self.end_host(running)
        except TimeoutError:
            raise OSError(110, "a host did not start in time") from None
        finally:
            del self.entries[view.key]
        await self.order_zygote("drop", entry.number, forget=view.segment)

    async def apply_views(self, views: Mapping[str, HostView | None]) -> None:
        """Make these hosts match their views; None means the node is deleted."""
        async with asyncio.TaskGroup() as group:
            for key, view in views.items():
                entry = self.entries.get(key)
                if entry is None:
                    if view is None:
                        continue
                    entry = self.entries[key] = PoolEntry(number=self.next_number())
                entry.target = view
                running = entry.running
                if running is not None and (
                    view is None or not view.on or view.boot != running.boot
                ):
                    running.expected = True
                    group.create_task(self.kill_quietly(running))
                group.create_task(self.update_host(key, entry))

    def next_number(self) -> int:
        """Return a number that no host had before."""
        self.made += 1
        return self.made

    async def update_host(self, key: str, entry: PoolEntry) -> None:
        """Apply a host's view; its errors do not affect other hosts."""
        while not self.closing.is_set():
            try:
                await self.update_until_done(key, entry)
                return
            except TimeoutError as error:  # the machine is busy: try again
                self.note_problem(f"{key}: {error.strerror or error}")
            except OSError as error:
                self.note_problem(f"{key}: {error.strerror or error}")
                return

    async def update_until_done(self, key: str, entry: PoolEntry) -> None:
        """Apply a host's view until there is nothing left to change."""
        async with entry.lock:
            while not self.closing.is_set():
                target, running = entry.target, entry.running
                if target is None:
                    await self.remove_host(key, entry)
                    return
                if running is not None and (not target.on or target.boot != running.boot):
                    await self.end_host(running)
                elif not target.on or (running is None and entry.ended == target.boot):
                    return
                elif running is None:
                    await self.boot_host(entry, target)
                else:
                    running.view = target
                    try:
                        await self.apply_faults(running, target)
                    # its own root user may have broken what we want to break
                    except OSError as error:
                        self.note_problem(f"{target.name}: {error.strerror or error}")
                    if entry.target is target:
                        return

    async def remove_host(self, key: str, entry: PoolEntry) -> None:
        """Remove a host and its disk, because its node is deleted."""
        if entry.running is not None:
            await self.end_host(entry.running)
        if self.entries.get(key) is entry:
            del self.entries[key]
            empty = all(one.segment != entry.segment for one in self.entries.values())
            if empty:
                self.peers.pop(entry.segment, None)
            if self.line is not None:
                forget = entry.segment if empty else ""
                await self.order_zygote("drop", entry.number, forget=forget)

    async def boot_host(self, entry: PoolEntry, target: HostView) -> None:
        """Start a host and its services, then report it to the world."""
        running = None
        try:
            async with self.boots:
                if entry.target is not target:
                    return  # it changed while others booted
                running = await self.start_host(entry, target)
                async with asyncio.timeout(BOOT_S):
                    await running.up
        except (OSError, TimeoutError) as error:
            entry.ended = target.boot
            if running is not None:
                wanted = running.expected
                await self.end_host(running)
                if wanted:
                    entry.ended = None
                    return
            late = isinstance(error, TimeoutError) and not error.args
            why = "it did not start in time" if late else boot_error_reason(error)
            self.report_event(target, "failed", why)
            return
        self.hosts[target.key] = running
        served = asyncio.Event()
        assert self.lives is not None
        self.lives.create_task(self.run_services(running, served))
        await served.wait()
        if not running.gone.is_set():
            self.report_event(target, "up")

    async def start_host(self, entry: PoolEntry, target: HostView) -> RunningHost:
        """Ask the zygote to start the host."""
        line = await self.ensure_zygote()
        entry.segment = target.segment
        await self.send_peers(line, target)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        running = entry.running = RunningHost(target, entry.number, ours, self.end_broken_host)
        try:
            with theirs:
                message = {"number": entry.number, "plan": make_boot_config(target)}
                reply, _ = await line.send_request(
                    "boot", message, [theirs.fileno()], within_s=BOOT_S
                )
        except OSError:
            entry.running = None
            running.mark_dead()
            raise
        int_field(reply, "pid")
        return running

    async def send_peers(self, line: Channel, target: HostView) -> None:
        """Tell the zygote once who is in a segment: each of its hosts gets to know all of them."""
        if self.peers.get(target.segment) != target.peers:
            self.peers[target.segment] = target.peers
            peers = [list(peer) for peer in target.peers]
            try:
                await line.send_request("peers", {"segment": target.segment, "peers": peers})
            except OSError:
                self.peers.pop(target.segment, None)
                raise

    def end_broken_host(self, running: RunningHost) -> None:
        """End a host that closed its channel although it is alive."""
        if self.lives is not None and not self.closing.is_set():
            self.lives.create_task(self.kill_quietly(running))

    async def kill_quietly(self, running: RunningHost) -> None:
        """End a host; log errors, and report its death as usual."""
        try:
            if not running.gone.is_set():
                await self.order_zygote("kill", running.number)
        except OSError as error:
            self.note_problem(f"{running.view.name}: {error.strerror or error}")

    async def run_services(self, running: RunningHost, served: asyncio.Event) -> None:
        """Run the services of a host while it is up."""
        try:
            async with self.make.services(running, self.world_api):
                served.set()
                await running.gone.wait()
        except OSError as error:
            if not running.gone.is_set():
                self.report_event(running.view, "failed", str(error))
        finally:
            served.set()

    async def apply_faults(self, running: RunningHost, target: HostView) -> None:
        """Apply the view's network, hang and disk faults to a running host."""
        network, hung, full = running.weather
        if hung and not target.hung:
            await self.order_zygote("hang", running.number, hung=False)
        if network != target.network:
            await self.order_zygote("network", running.number, network=target.network)
        if full != target.disk_full:
            await self.order_zygote("disk", running.number, full=target.disk_full)
        if target.hung and not hung:
            await self.order_zygote("hang", running.number, hung=True)
        running.weather = (target.network, target.hung, target.disk_full)

    def note_problem(self, sentence: str) -> None:
        """Record a problem for `herd sim status`."""
        if sentence not in self.missing:
            self.missing.append(sentence)

    async def order_zygote(self, verb: str, number: int, **facts: object) -> None:
        """Send an order to the zygote; ignore it if the host or the zygote ended meanwhile."""
        try:
            if self.line is not None:
                await self.line.send_request(verb, {"number": number, **facts})
        except (ProcessLookupError, ConnectionError):
            pass

    async def kill_host(self, running: RunningHost) -> None:
        """Cut the power."""
        running.expected = True
        if not running.gone.is_set():
            await self.order_zygote("kill", running.number)

    async def end_host(self, running: RunningHost) -> None:
        """Cut the power and wait until the host is gone."""
        await self.kill_host(running)
        async with asyncio.timeout(DEATH_S):
            await running.gone.wait()

    def on_host_died(self, news: Message) -> None:
        for entry in list(self.entries.values()):
            running = entry.running
            if running is not None and news.get("host") == running.number:
                self.record_death(entry, running, int_field(news, "status"))

    def record_death(self, entry: PoolEntry, running: RunningHost, status: int) -> None:
        """Record that a host ended: ended by us, rebooted by itself, or crashed."""
        entry.running = None
        if self.hosts.get(running.view.key) is running:
            del self.hosts[running.view.key]
        started = running.up.done() and running.up.exception() is None
        running.mark_dead()
        if running.expected or not started:
            return
        entry.ended = running.boot
        ends = {int(signal.SIGHUP): "rebooted", int(signal.SIGINT): "off"}
        event = ends.get(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, "failed")
        self.report_event(running.view, event, f"wait status {status}", boot=running.boot)

    def on_zygote_died(self) -> None:
        """Record that the zygote ended, and all hosts with it. The next boot starts a new one."""
        self.line = None
        self.peers.clear()
        if self.zygote is not None:
            wait_for_zygote(self.zygote)
        for entry in list(self.entries.values()):
            if entry.running is not None:
                self.record_death(entry, entry.running, int(signal.SIGKILL))

    def report_event(
        self, view: HostView, event: str, why: str = "", boot: int | None = None
    ) -> None:
        """Report an event of a host to the world."""
        body = {"event": event, "boot": view.boot if boot is None else boot, "why": why}
        path = f"/sim/v1/hosts/{view.key}:report"
        request = Request(method="POST", path=path, body=json.dumps(body).encode())
        if (
            self.world_api.handle_request(request).status == UNAVAILABLE
            and not self.closing.is_set()
        ):
            # The world can't store the report now. Without it the node would never be READY.
            asyncio.get_running_loop().call_later(
                AGAIN_S, self.report_event, view, event, why, boot
            )

    async def close(self) -> None:
        self.closing.set()
        for entry in self.entries.values():
            if entry.running is not None:
                entry.running.expected = True
        await self.end_zygote()
        if self.lives_task is not None:
            await self.lives_task

    async def end_zygote(self) -> None:
        """Close the channel, which ends the zygote and all hosts."""
        line, zygote = self.line, self.zygote
        self.line = self.zygote = None
        if line is not None:
            line.close()
        if zygote is not None:
            await asyncio.get_running_loop().run_in_executor(None, wait_for_zygote, zygote)


def wait_for_zygote(zygote: subprocess.Popen[bytes]) -> None:
    """Wait until the zygote ends, which it does when its channel closes; else kill it."""
    try:
        zygote.wait(DEATH_S)
    except subprocess.TimeoutExpired:
        zygote.kill()
        zygote.wait()
