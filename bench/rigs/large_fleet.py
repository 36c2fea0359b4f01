"""A large fleet in one process and virtual time: the real engine, a world, and agents' decisions.

Creating 5,000 nodes at 60 a minute takes 83 minutes of any time, so until all run the rate is
unlimited, and each is requested in one zone alone. Each round of the engine, and each list that it
parses, takes as much virtual time as it takes processor time here: what it costs delays what it
does next. Everybody else's work takes none.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from bench.rigs.light_agents import LightMachine
from bench.rigs.sample_history import sample_event
from bench.rigs.used_time import SampledTime

from tests.simulated import engine_harness, engine_harness_parts, engine_ports, engine_world
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_hosts import Machine
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_world import ZONES, ApiRequest
from tpuherd.cloud import parse
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.garbage import rare_collections
from tpuherd.engine.loop import EXPAND_S, Engine
from tpuherd.model.lab_shares import NO_SHARES, LabShares
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.ports import Host
from tpuherd.store.connection import Driver
from tpuherd.store.sample_store import SampleStore
from tpuherd_host.agent import frames

TYPE = "v5p-32"  #: four hosts
LOOK_S = 5.0  #: as the engine does while it holds nodes
HASTE = 20.0  #: of the cloud in creating nodes
UNLIMITED = 10**6


@dataclass(frozen=True, kw_only=True)
class FleetKind:
    """What differs between fleets."""

    type: str = TYPE
    users: int = 0  #: whose the jobs are, in turns
    shares: LabShares = NO_SHARES
    driver: Callable[[], Driver] | None = None  #: of another store than a file
    clock: Callable[[], float] = time.process_time  #: by which the engine's work takes time


class NearHosts(engine_ports.Hosts):
    """Finds who answers at an address without asking 20,000 machines."""

    def __init__(self, machines: Mapping[str, Machine], *rest: Any) -> None:
        super().__init__(machines, *rest)
        self.by_ip: dict[str, Machine] = {}

    def at(self, host: Host) -> Machine | None:
        found = self.by_ip.get(host.internal_ip)
        if found is None or not found.on or found.view.internal_ip != host.internal_ip:
            self.by_ip = {one.view.internal_ip: one for one in self.machines.values() if one.on}
            found = self.by_ip.get(host.internal_ip)
        return found


class DirectKeeper:
    """Keeps samples at once: a virtual loop has no threads."""

    def __init__(self, folder: Path) -> None:
        self.store = SampleStore(folder)

    async def put_samples(self, hosts: Collection[Any], values: Collection[Any]) -> None:
        self.store.put_samples(hosts, values)

    async def forget_jobs(self, jobs: Collection[str]) -> None:
        self.store.forget_jobs(jobs)


class Fleet:
    """What is counted while the fleet runs."""

    def __init__(self, play: EngineHarness) -> None:
        self.play = play
        self.creates_per_min = UNLIMITED
        self.hedge: int | None = 1
        self.commits = 0
        self.rounds: list[float] = []  #: processor seconds of each round of the engine
        self.asked_at: dict[str, list[float]] = {}  #: creates by slot, with their time

    def note_request(self, asked: ApiRequest) -> None:
        if asked.creates:
            slot = asked.name.rpartition("-g")[0]
            self.asked_at.setdefault(slot, []).append(asked.at)

    def note_statement(self, connection: object, statement: str) -> None:
        self.commits += statement == "COMMIT"


def submit_jobs(play: EngineHarness, nodes: int, jobs: int, kind: FleetKind) -> None:
    """Submit these jobs with as many copies each as make so many nodes."""
    now = play.clock.now()
    for number in range(jobs):
        copies = nodes // jobs + (number < nodes % jobs)
        if not copies:
            continue
        user = f"user{number % kind.users}" if kind.users else ""
        one = SimJob(
            job=f"job{number}",
            copies=copies,
            zones=ZONES,
            type=kind.type,
            setup=False,
            user=user,
        )
        event = HistoryEvent(at=now, kind="job.submitted", job=one.job, facts={"who": "me"})
        play.store.put_job(one.to_stored_job(now), [event])


@contextmanager
def costed(
    work: type | Any, name: str, spent: Callable[[float], None], clock: Callable[[], float]
) -> Any:
    """Let a function of the engine take as much virtual time as it takes by this clock."""
    real = getattr(work, name)

    @wraps(real)
    def counted(*arguments: Any, **named: Any) -> Any:
        begun = clock()
        try:
            return real(*arguments, **named)
        finally:
            took = clock() - begun
            asyncio.get_running_loop().selector.now += took  # type: ignore[attr-defined]
            spent(took)

    with patch.object(work, name, counted):
        yield


def run_fleet(
    nodes: int,
    jobs: int,
    measure: Callable[[Fleet, SampledTime], Any],
    kind: FleetKind | None = None,
) -> Any:
    """Bring up a fleet, and return what `measure` makes of it; also the sampled time."""
    kind = FleetKind() if kind is None else kind
    used = SampledTime(owner_of_frame)

    async def plot(play: EngineHarness) -> Any:
        fleet = Fleet(play)
        play.watch.asked = lambda asked: None  # type: ignore[method-assign]
        play.sim.watchers[:] = [fleet.note_request]
        play.stated = fleet.note_statement
        play.shares = kind.shares
        play.samples = DirectKeeper(play.folder)
        play.look_s = LOOK_S
        play.sim.world.books.quotas["-/qps/create"] = UNLIMITED
        play.sim.calm()

        def desire(rows: Mapping[str, Any], shares: LabShares) -> DesiredState:
            found = engine_harness_parts.desire(rows, shares)
            rate, hedge = fleet.creates_per_min, fleet.hedge
            slots = replace(found.desired_slots, creates_per_min=rate, hedge=hedge)
            return replace(found, desired_slots=slots)

        with ExitStack() as stack:
            stack.enter_context(patch.object(engine_harness, "desire", desire))
            stack.enter_context(patch.object(engine_harness, "Hosts", NearHosts))
            stack.enter_context(patch.object(engine_world, "Machine", LightMachine))
            event = sample_event(random.Random(3), 100.0)
            LightMachine.sample = frames.pack_json(frames.EVENT, 0, event)
            stack.enter_context(costed(Engine, "_plan_once", fleet.rounds.append, kind.clock))
            for name in ("parse_nodes", "parse_queued_resources"):
                stack.enter_context(costed(parse, name, lambda took: None, kind.clock))
            async with rare_collections(play.clock):
                submit_jobs(play, nodes, jobs, kind)
                await until_running(play, nodes)
                fleet.creates_per_min, fleet.hedge = 60, None
                await asyncio.sleep(EXPAND_S)
                return await measure(fleet, used)

    return perform(plot, haste=HASTE, driver=kind.driver)


async def until_running(play: EngineHarness, nodes: int) -> None:
    """Wait until every slot's attempt has begun."""
    end = play.sim.now() + 4 * 3600.0
    while len(play.events("attempt.started")) < nodes:
        assert play.sim.now() < end, f"{len(play.events('attempt.started'))} of {nodes} run"
        await asyncio.sleep(5.0)
    await asyncio.sleep(70.0)  # the requests of the last minute count


SHARED = ("/agent/frames.py", "/agent/log_records.py")  #: code of both ends of a link
OWNERS = (
    ("/src/tpuherd/", "engine"),
    ("/src/tpuherd_sim/", "world"),
    ("/src/tpuherd_host/", "agents"),
    ("/tests/simulated/", "agents"),
    ("/bench/", "agents"),
)


def owner_of_frame(frame: FrameType | None) -> str:
    """Whose code runs: that of the innermost function which is anybody's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.endswith(SHARED):
            for part, owner in OWNERS:
                if part in file:
                    return owner
        frame = frame.f_back
    return "loop"
