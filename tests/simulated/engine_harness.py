"""The real engine in a world of this process, killed and restarted as a test says."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.simulated.engine_disk import FaultyConnection
from tests.simulated.engine_harness_parts import SetClock, desire, look_back, told
from tests.simulated.engine_invariants import (
    Watch,
    missing_trials,
    unmet_jobs,
    wrong_accounts,
    wrong_choices,
    wrong_trials,
    wrong_verdicts,
)
from tests.simulated.engine_jobs import SimJob, slots, submit_event_kind
from tests.simulated.engine_ports import EngineLife, Hosts, RequestFault, Store, Wire
from tests.simulated.engine_programs import Script
from tests.simulated.engine_world import OWNER, ApiRequest, SimulatedCloud
from tests.simulated.in_process_world import START
from tests.simulated.virtual_loop import run
from tpuherd.clock import Clock, SteadyClock
from tpuherd.cloud.auth import AnonymousAuth
from tpuherd.cloud.bids_api import BidsApi
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.rest import RestClient, world_http_client
from tpuherd.engine.create_engine import GONE_S, start_clock
from tpuherd.engine.event_log import RECOVERED
from tpuherd.engine.host_samples import NoKeeper, SampleKeeper
from tpuherd.engine.loop import EndReason, Engine, EngineDeps
from tpuherd.engine.notifier import Notifier, NotifierDeps, SendMessage
from tpuherd.errors import HerdError, StoreDamaged
from tpuherd.history.apply_event import apply_event
from tpuherd.model.lab_shares import NO_SHARES, LabShares
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Slot
from tpuherd.ports import LeaseHolder
from tpuherd.settings.endpoints import ServiceUrls
from tpuherd.store.connection import Driver
from tpuherd.store.corruption import MARK
from tpuherd.store.database import Database
from tpuherd.store.engine_rest import is_at_rest
from tpuherd.store.log_store import LogStore
from tpuherd.store.set_aside import SET_ASIDE, acknowledge_restoration
from tpuherd.sweeps.scheduler import OURS, SweepAdvisor
from tpuherd_sim.model.http_types import Request

T = TypeVar("T")

URL = "http://world"
TTL_S = 30.0
RESTART_S = 1.0  #: from an engine's death to the next one
LOOK_S = 5.0
MENDED_S = 600.0  #: a damaged store is set aside at once, and what it lost found when zones answer
SETTLE_S = 40.0
STAY_S = 240.0  #: for this long nothing may change once every job is as submitted
ROOM = Path("/dev/shm")  #: a store without a disk, where there is such a thing


@dataclass(eq=False, kw_only=True)
class EngineHarness:
    """One history, from the first submitted job to its end."""

    sim: SimulatedCloud
    folder: Path
    watch: Watch = field(init=False)
    store: Database = field(init=False)  #: the user's, beside the engine's
    owner: str = OWNER
    life: EngineLife | None = None
    lives: int = 0
    at: Callable[[EngineLife, str], None] = lambda life, place: None
    before: Callable[[Request], RequestFault | None] = lambda request: None
    stated: Callable[[sqlite3.Connection, str], None] = lambda connection, statement: None
    acknowledges: bool = True  #: the user lets the engine go on with a restored backup
    was_damaged: bool = False  #: the store, and it may lack what the cloud shows
    kept: list[HistoryEvent] = field(default_factory=list)  #: the event log before it was damaged
    said: dict[str, SimJob] = field(default_factory=dict)  #: what the user wants, by job
    troubles: list[str] = field(default_factory=list)  #: an engine that crashed
    wanted: bool = True  #: an engine is restarted when it ends
    engine: Engine | None = None
    page: int = 0  #: lists have so few a page
    look_s: float = 60.0  #: as the plan says: days pass here, and each look costs
    advice: SweepAdvisor = OURS  #: on the trials of sweeps
    driver: Callable[[], Driver] | None = None  #: of another store than a file
    shares: LabShares = NO_SHARES  #: what the users of a lab agree on
    samples: SampleKeeper = field(default_factory=NoKeeper)
    send: SendMessage | None = None  #: tells the user's receivers
    tells_others: bool = False  #: whether the user allows messages of others' jobs
    #: how time passes whatever the clock shows; then engines also ask the cloud for the time
    elapsed: Callable[[], float] | None = None
    remembered: History = field(default_factory=History)
    folded: int = 0

    def __post_init__(self) -> None:
        self.clock = SetClock(self.sim.clock)
        self.lease_clock = SteadyClock(self.clock)  # no lock tells here that an engine is dead
        self.watch = Watch(sim=self.sim)
        self.sim.watchers.append(self.watch.asked)
        self.store = self.open_database()

    def open_database(self) -> Database:
        """The store, as one more process opens it."""
        driver = None if self.driver is None else self.driver()
        return Database(self.folder, self.clock.now(), driver)

    # ---- the user --------------------------------------------------------------------------------

    def submit(self, sim_job: SimJob) -> None:
        """Submit a job, or change it."""
        self.said[sim_job.job] = sim_job
        now = self.clock.now()
        stored_job = sim_job.to_stored_job(now)
        known = self.store.stored_jobs().get(sim_job.job)
        kind = submit_event_kind(known, stored_job)
        if known is not None:
            stored_job = replace(stored_job, made_at=known.made_at)
        events = [HistoryEvent(at=now, kind=kind, job=sim_job.job, facts={"who": "me"})]
        before = None if known is None else known.document.get("sweep")
        if sim_job.items and before != stored_job.document["sweep"]:
            events += sim_job.map_events(now)
        self.store.put_job(stored_job, events)
        self.update_wanted_slots()

    def down(self, job: str) -> None:
        """Remove a job."""
        now = self.clock.now()
        self.store.remove_job(
            job, [HistoryEvent(at=now, kind="job.removed", job=job, facts={"who": "me"})]
        )
        self.said.pop(job, None)
        self.update_wanted_slots()

    def update_wanted_slots(self) -> None:
        """Tell the watcher which slots are wanted now; slots of removed jobs stay known."""
        wanted = {
            slot.name: slot
            for stored_job in self.store.stored_jobs().values()
            for slot in slots(stored_job)
        }
        gone = {
            name: replace(slot, goal=Goal.GONE)
            for name, slot in self.watch.slots.items()
            if name not in wanted
        }
        self.watch.slots = {**gone, **wanted}

    def events(self, *kinds: str) -> list[HistoryEvent]:
        """What the log says."""
        return [event for _, event in self.store.read_events(kinds=kinds or None)]

    def history(self) -> list[HistoryEvent]:
        """All that was ever in the log, with what a damaged store has lost."""
        events = self.events()
        aside = [n for n, event in enumerate(events) if event.kind == SET_ASIDE]
        return [*self.kept, *events[aside[-1] :]] if aside else events

    def folded_history(self) -> History:
        """What is remembered."""
        for seq, event in self.store.read_events(after=self.folded):
            self.remembered = apply_event(self.remembered, event)
            self.folded = seq
        return self.remembered

    def forget(self) -> None:
        """The store was lost: a new one, which knows nothing."""
        self.store = Database(self.folder, self.clock.now())
        self.remembered, self.folded = History(), 0

    # ---- the engine ------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Start one engine after another, as every command does when none is running."""
        while True:
            if self.wanted:
                await self.one()
            await asyncio.sleep(RESTART_S)
            while self.at_rest():
                await asyncio.sleep(RESTART_S)

    def at_rest(self) -> bool:
        """Whether no command would start an engine."""
        try:
            return is_at_rest(self.store)
        except HerdError:
            return False

    async def one(self) -> None:
        """The life of one engine."""
        life = EngineLife()
        life.at = lambda place: self.at(life, place)
        inner = self.open_store(life)
        holder = LeaseHolder(pid=1000 + self.lives, host="laptop", who="me@laptop")
        try:
            clock = SteadyClock(self.clock, inner.latest_event_time(), self.elapsed)
            epoch = inner.take_lease(holder, self.lease_clock.now(), TTL_S)
        except HerdError:
            epoch = None  # its process says so, and ends
        if epoch is None:
            inner.close()
            return
        self.life = life
        self.lives += 1
        hello = {"who": "me@laptop", "owner": self.owner, "epoch": epoch}
        hosts = Hosts(self.sim.virtual_hosts.machines, hello, life)
        wire = Wire(self.sim.live_world, life, self.asked, self.page)
        store = Store(inner, life)
        try:
            async with world_http_client(wire) as http:
                rest = RestClient(http, ServiceUrls(tpu=URL, compute=URL), AnonymousAuth())
                cloud = Cloud(rest, "demo")
                if self.elapsed is not None:
                    await start_clock(clock, rest, lambda name, facts: None)
                parts = EngineDeps(
                    store=store,
                    secrets=inner.secrets,
                    cloud=BidsApi(cloud, clock, 22, cloud.list_nodes),
                    hosts=hosts,
                    shelf=LogStore(self.folder / "logs"),
                    troubles=inner.troubles,
                    clock=clock,
                    lease_clock=self.lease_clock,
                    desire=lambda jobs: desire(jobs, self.shares),
                    owner=self.owner,
                    outputs=self.folder / "outputs",
                    gone_s=GONE_S,
                    advice=self.advice,
                    look_s=self.look_s,
                    samples=self.samples,
                    notifier=self.notifier(store, clock),
                )
                engine = self.engine = Engine(parts, epoch=epoch)
                life.task = asyncio.create_task(engine.run())
                ended = await self.ended(life.task, life)
                if ended and life.task.result() is not EndReason.DAMAGED:
                    inner.release_lease(epoch)
        except HerdError:
            pass  # the lease can't be given back: the process ends, and the lease runs out
        finally:
            life.dead = True
            hosts.cut()
            inner.close()

    def notifier(self, store: Store, clock: Clock) -> Notifier | None:
        """What tells people, if a test wants it."""
        if self.send is None:
            return None
        return Notifier(
            NotifierDeps(
                store=store,
                secrets=store.secrets,
                folder=self.folder,
                clock=clock,
                send=self.send,
                origin="the harness",
                who="ann@box",
                tells_others=lambda: self.tells_others,
                log=lambda name, facts: None,
            )
        )

    def open_store(self, life: EngineLife) -> Database:
        """The store of this engine. A damaged one is set aside: no other process has it open."""
        damaged = (self.folder / MARK).exists()
        if damaged:
            self.store.close()
        inner = self.open_database()
        if self.driver is not None:
            return inner  # faults of a disk are those of SQLite

        def before(connection: sqlite3.Connection, statement: str) -> None:
            self.stated(connection, statement)

        file: Any = inner._driver
        file._connection = FaultyConnection(file._connection, life, before)
        if damaged:
            self.forget()
            self.was_damaged = True
        return inner

    async def repeat(self, command: Callable[[], T]) -> T:
        """Repeat a command that was the first to read a damaged page, as it tells its user."""
        try:
            return command()
        except StoreDamaged:
            await self.await_store()
            return command()

    async def await_store(self) -> None:
        """A damaged store is let go of and set aside, and soon knows again what it lost: no job,
        and none that was dropped; its user acknowledges it."""
        end = self.sim.clock.now() + MENDED_S
        while (self.folder / MARK).exists():
            if self.sim.clock.now() > end:
                raise AssertionError("the damaged store was not set aside")
            await asyncio.sleep(RESTART_S)
        if not self.was_damaged:
            return
        while not self.events(RECOVERED):
            if self.sim.clock.now() > end:
                raise AssertionError("the store never recovered")
            await asyncio.sleep(RESTART_S)
        assert self.store.stored_jobs().keys() == self.said.keys(), "the backup has other jobs"
        if self.acknowledges:
            acknowledge_restoration(self.store, self.folder)
        self.was_damaged = False

    async def ended(self, task: asyncio.Task[EndReason], life: EngineLife) -> bool:
        """Whether an engine ended normally; a crash is a finding."""
        await asyncio.wait([task])
        if task.cancelled():
            return False
        error = task.exception()
        if life.dead:
            return False
        if error is not None:
            self.troubles.append(f"{self.sim.now():.1f} s: {told(error)}")
        return error is None

    def asked(self, request: Request) -> RequestFault | None:
        """A request is on its way to the world."""
        spoil = self.before(request)
        self.sim.note(request)
        return spoil

    def kill(self) -> None:
        """kill -9, from outside."""
        if self.life is not None:
            self.life.die()

    # ---- time ------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Let time pass, with all watchers awake."""
        end = self.sim.clock.now() + seconds
        while (left := end - self.sim.clock.now()) > 0:
            await asyncio.sleep(min(LOOK_S, left))
            await self.await_store()
            self.watch.look()

    async def until(self, happens: Callable[[], bool], patience_s: float) -> bool:
        """Let time pass until something is so; False when it never was."""
        end = self.sim.clock.now() + patience_s
        while not happens():
            if self.sim.clock.now() >= end:
                return False
            await self.advance(min(LOOK_S, end - self.sim.clock.now()))
        return True

    def met(self) -> bool:
        """Whether every job is as submitted."""
        return not self.unmet_jobs()

    def unmet_jobs(self) -> list[str]:
        """What differs from the submitted jobs."""
        slots, history = self.watch.slots, self.folded_history()
        return [
            *unmet_jobs(self.sim, slots, history.slots),
            *missing_trials(slots.values(), history.sweeps),
        ]

    def verdict(self) -> list[str]:
        """All that was wrong in this history."""
        events = self.history()
        return [
            *self.watch.faults,
            *self.troubles,
            *wrong_verdicts(self.sim, events),
            *wrong_accounts(events, clock_was_set=self.clock.was_set),
            *wrong_trials(events),
            *wrong_choices(events),
        ]

    async def close(self, patience_s: float = 3600.0) -> list[str]:
        """End a history: in calm weather each job gets what it asks for, then is removed."""
        self.sim.calm()
        await self.advance(SETTLE_S)  # what was announced before comes yet
        await self.until(self.met, patience_s)
        found = self.unmet_jobs()
        if not found:
            mark, store = len(self.mutations()), self.store
            await self.advance(STAY_S)
            if self.store is not store:  # it was damaged at the end, and what it lost runs again
                await self.until(self.met, patience_s)
                mark = len(self.mutations())
            found += [f"later {sentence}" for sentence in self.unmet_jobs()]
            restless = [f"{a.method} {a.name}" for a in self.mutations()[mark:]]
            found += [f"nothing was left to do, and yet: {restless}"] if restless else []
        for job in await self.repeat(self.store.stored_jobs):
            await self.repeat(partial(self.down, job))
        if not await self.until(lambda: not self.sim.remains(), 1800.0):
            found.append(f"after down there is {self.sim.remains()}")
        self.watch.look()
        return [*found, *self.verdict()]

    def mutations(self) -> list[ApiRequest]:
        """All requests of engines that change the world."""
        return [asked for asked in self.sim.asked if not asked.reads]


Plot = Callable[[EngineHarness], Awaitable[Any]]


def perform(
    plot: Plot,
    *,
    seed: int = 1,
    scripts: Mapping[str, Script] | None = None,
    haste: float = 1.0,
    driver: Callable[[], Driver] | None = None,
) -> Any:
    """EngineHarness a plot in virtual time; with haste the cloud takes less time for everything."""

    async def main() -> Any:
        with tempfile.TemporaryDirectory(dir=ROOM if ROOM.exists() else None) as folder:
            sim = SimulatedCloud(seed=seed, scripts=scripts or {}, haste=haste)
            play = EngineHarness(sim=sim, folder=Path(folder), driver=driver)
            tasks = [asyncio.create_task(sim.live()), asyncio.create_task(play.keep())]
            try:
                found = await plot(play)
                for task in tasks:
                    if task.done():
                        task.result()  # a world that has stopped shows nothing
                look_back(play)
                return found
            finally:
                play.wanted = False
                play.kill()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if play.life is not None and play.life.task is not None:
                    await asyncio.wait([play.life.task])
                    with suppress(asyncio.CancelledError):
                        play.life.task.exception()
                play.store.close()

    return run(main())


def desired_slots(play: EngineHarness) -> Mapping[str, Slot]:
    """The slots of all submitted jobs."""
    return play.watch.slots


__all__ = ["START", "EngineHarness", "Plot", "SimJob", "perform"]
