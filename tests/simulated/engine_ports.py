"""What an engine of these tests sees of the world: its requests, its links, and their faults.

One Outside belongs to one life of an engine. When that life is ended by `die`, nothing that its
remains do (finally blocks, tasks that are cancelled) reaches the world, the hosts or the disk.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx2

from tests.simulated.engine_hosts import Machine
from tests.simulated.engine_links import VirtualLink
from tpuherd.errors import IdentityMismatch, NotFound, NotReached
from tpuherd.history.fact_types import find_wrong_fact
from tpuherd.model.node_spec import EnvironmentNote
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import FetchedFiles, Host, Link
from tpuherd.remote.agent_link import AgentLink
from tpuherd.store.database import Database
from tpuherd_host.agent import frames
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Request

KNOCK_S = 0.4
PATIENCE_S = 10.0
SHIP_S = 3.0
FETCH_S = 1.0


class EngineKilled(BaseException):
    """This engine was killed: nothing that it still does has an effect."""


class EngineLife:
    """Whether an engine lives, and what is asked at each of its steps."""

    def __init__(self) -> None:
        self.dead = False
        self.task: asyncio.Task[Any] | None = None  #: the engine
        self.at: Callable[[str], None] = lambda place: None  #: may end the life

    def check(self, place: str) -> None:
        """Before or after something that has an effect."""
        if not self.dead:
            self.at(place)
        if self.dead:
            raise EngineKilled(place)

    def die(self) -> None:
        """kill -9: whatever it still does has no effect."""
        self.dead = True
        if self.task is not None:
            self.task.cancel()


RequestFault = Callable[[httpx2.Response], httpx2.Response]  #: what becomes of an answer on its way


class Wire(httpx2.AsyncBaseTransport):
    """Carries requests to the world by a call, at the loop's time."""

    def __init__(
        self,
        live_world: LiveWorld,
        life: EngineLife,
        before: Callable[[Request], RequestFault | None],
        page: int,
    ) -> None:
        self.page = page
        self.live_world = live_world
        self.life = life
        self.before = before  #: the world's watchers, and the fault that is due

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        name = f"{request.method} {request.url.path.rpartition('/')[2]}"
        self.life.check(f"before {name}")
        asked = Request(
            method=request.method,
            path=request.url.path,
            query=self.paged(request.url.query.decode()),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.aread(),
        )
        spoil = self.before(asked)
        answer = self.live_world.handle_request(asked)
        patience_s = (request.extensions.get("timeout") or {}).get("read") or 30.0
        await asyncio.sleep(min(max(answer.delay_s, 0.05), patience_s))
        if answer.delay_s > patience_s:
            raise httpx2.ReadTimeout("no answer came", request=request)
        if request.method != "GET":
            self.life.check(f"after {name}")
        if self.life.dead:
            raise EngineKilled(name)
        if answer.lost:
            raise httpx2.ReadError("the connection was cut", request=request)
        date = ("date", formatdate(self.live_world.current_time(), usegmt=True))
        headers = [*answer.headers, date]
        given = httpx2.Response(answer.status, content=answer.body, headers=headers)
        return given if spoil is None else spoil(given)

    def paged(self, query: str) -> str:
        """With smaller pages, if somebody wants them so."""
        return re.sub(r"pageSize=\d+", f"pageSize={self.page}", query) if self.page else query


class Hosts:
    """ports.HostsPort: links to virtual agents, and code that lands on virtual disks."""

    def __init__(
        self, machines: Mapping[str, Machine], hello: Mapping[str, Any], life: EngineLife
    ) -> None:
        self.machines = machines
        self.hello = hello
        self.life = life
        self.links: dict[tuple[str, int], AgentLink] = {}
        self.fetched: list[tuple[str, tuple[str, ...]]] = []
        self.shipped: deque[tuple[str, str]] = deque(maxlen=1000)
        self.lines: list[VirtualLink] = []

    async def open_link(self, host: Host) -> Link:
        """The link there is, or a new one."""
        key = (host.incarnation, host.worker)
        link = self.links.get(key)
        if link is not None and link.alive:
            return link
        self.life.check(f"open {host.name}")
        await asyncio.sleep(KNOCK_S)
        machine = self.at(host)
        if machine is None or not machine.answers or machine.closed:
            if host.booting:
                raise NotReached("its node is not READY yet")
            await asyncio.sleep(PATIENCE_S - KNOCK_S)
            raise NotReached(f"{host.name} gave no answer in {PATIENCE_S:g} s")
        if not host.incarnation.startswith(f"{machine.view.key.partition('-')[0]}@"):
            raise IdentityMismatch(f"another node answers at the address of {host.name}")
        self.life.check(f"link {host.name}")
        line = machine.open()
        self.lines.append(line)
        line.multiplexer.send_hello({"protocol": frames.PROTOCOL, **self.hello})
        try:
            async with asyncio.timeout(60.0):
                hello = await line.multiplexer.hello
        except TimeoutError as error:
            raise NotReached(f"the agent of {host.name} gave no answer in 60 s") from error
        link = self.links[key] = AgentLink(host, hello, line.multiplexer)
        return link

    def at(self, host: Host) -> Machine | None:
        """Who answers at the host's address now: perhaps somebody else."""
        for machine in self.machines.values():
            ours = host.external_ip and machine.view.external_ip == host.external_ip
            if machine.on and (ours or machine.view.internal_ip == host.internal_ip):
                return machine
        return None

    async def ship(
        self, snapshot: str, dest: str, links: Sequence[Link], source: Link | None = None
    ) -> Mapping[str, str]:
        """Fill all, then switch all."""
        self.life.check("ship")
        await asyncio.sleep(SHIP_S)
        self.life.check("shipped")
        failed = {}
        for link in links:
            machine = self.at(link.host)
            if not getattr(link, "alive", True) or machine is None or not machine.answers:
                failed[link.host.name] = "the link was lost"
        if not failed:
            for link in links:
                machine = self.at(link.host)
                assert machine is not None
                machine.disk.trees[dest] = snapshot
            self.shipped.append((snapshot, dest))
        return failed

    async def fetch_files(
        self, paths: Sequence[str], link: Link, into: Path, within_s: float | None = None
    ) -> FetchedFiles:
        """Bring files back."""
        self.life.check("fetch")
        await asyncio.sleep(FETCH_S)
        if not getattr(link, "alive", True):
            raise NotReached(f"the link to {link.host.name} was lost")
        self.fetched.append((link.host.name, tuple(paths)))
        return FetchedFiles(came=list(paths))

    def known_environments(self, job: str, key: str) -> Mapping[str, EnvironmentNote]:
        """No job here has one."""
        return {}

    def note_environment(self, job: str, key: str, note: EnvironmentNote) -> None:
        """Nothing is noted."""

    def is_complete(self, snapshot: str) -> bool:
        """All code is here."""
        return True

    async def lend_uv(self, link: Link, platform: str) -> bool:
        """There is no uv."""
        return False

    def retain_snapshots(self, snapshots: Collection[str]) -> Collection[str]:
        """All code is here."""
        return ()

    async def recover_snapshot(self, snapshot: str, links: Sequence[Link]) -> None:
        """None is ever lost."""
        raise NotFound(f"no host has {snapshot}")

    def cut(self) -> None:
        """All links are gone, as when their process is."""
        for line in self.lines:
            line.close()


class Store:
    """ports.Store whose engine can be killed before and after each write."""

    def __init__(self, inner: Database, life: EngineLife) -> None:
        self.inner = inner
        self.life = life
        self.secrets = inner.secrets
        self.recovery_message = inner.recovery_message
        self.folder = inner.folder

    def append_events(
        self,
        events: Sequence[HistoryEvent],
        *,
        epoch: int | None = None,
        unchanged_since: int | None = None,
    ) -> int:
        """Journal these, if no reader takes one for malformed."""
        for one in events:
            wrong = find_wrong_fact(one.kind, json.loads(json.dumps(one.facts)))
            assert not wrong, f"{one.kind} with {wrong}: {one.facts[wrong]!r}"
        kinds = ",".join(dict.fromkeys(one.kind for one in events))
        self.life.check(f"before {kinds}")
        seq = self.inner.append_events(events, epoch=epoch, unchanged_since=unchanged_since)
        self.life.check(f"after {kinds}")
        return seq

    def put_job(
        self,
        stored_job: StoredJob,
        events: Sequence[HistoryEvent] = (),
        *,
        expected: int | None = None,
    ) -> StoredJob:
        self.life.check("before put")
        return self.inner.put_job(stored_job, events, expected=expected)

    def add_jobs(self, new: Sequence[StoredJob], events: Sequence[HistoryEvent]) -> None:
        self.life.check("before adopt")
        self.inner.add_jobs(new, events)
        self.life.check("after adopt")

    def remove_job(self, job: str, events: Sequence[HistoryEvent] = ()) -> None:
        self.life.check("before drop")
        self.inner.remove_job(job, events)
        self.life.check("after drop")

    def read_events(self, **chosen: Any) -> Iterator[tuple[int, HistoryEvent]]:
        return self.inner.read_events(**chosen)

    def save_history(self, seq: int, content: bytes) -> None:
        self.life.check("before trails")
        self.inner.save_history(seq, content)

    def put_slot_messages(self, states: Mapping[str, str]) -> None:
        if not self.life.dead:
            self.inner.put_slot_messages(states)

    def renew_lease(self, epoch: int, now: float) -> None:
        self.life.check("before renew")
        self.inner.renew_lease(epoch, now)

    def release_lease(self, epoch: int) -> None:
        if not self.life.dead:
            self.inner.release_lease(epoch)

    def close(self) -> None:
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        if self.life.dead:
            raise EngineKilled(name)
        return getattr(self.inner, name)
