"""Runs the real engine for one job on traces, in virtual time, and accounts for what it did."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from bench.lab import account
from bench.lab.account import PolicyRun
from bench.lab.capacity import Capacity, join_capacities
from bench.lab.constants import Constants
from bench.lab.trace_cloud import TraceCloud, TraceNode
from bench.lab.trace_hosts import TraceHosts
from bench.lab.training import GangRun, Training

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.engine.dependencies import EngineDeps
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.loop import Engine
from tpuherd.model.node_spec import LaunchSpec, NodeSpec
from tpuherd.model.slots_and_plan import DesiredSlots, Goal, HistoryEvent, Limits, Offer, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogStore
from tpuherd.store.secret_files import SecretFiles
from tpuherd.store.trouble_files import TroubleStore

START = 1_800_000_000.0
JOB, OWNER = "gpt", "lab"
DOWN_S = 900.0  #: after the end, until the job's nodes must be gone


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCase:
    """What one run is asked to do."""

    policy: str
    seed: int
    gang: int
    length_s: float
    zones: tuple[Capacity, ...]
    constants: Constants


class WatchedStore(Database):
    """A store that says when events were written."""

    def __init__(self, folder: Path, written: Callable[[], None]) -> None:
        super().__init__(folder, START)
        self._written = written

    def append_events(self, events: Sequence[HistoryEvent], **more: Any) -> int:
        number = super().append_events(events, **more)
        self._written()
        return number


def run_engine(case: EngineCase) -> PolicyRun:
    """Run it in virtual time."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        return run(Laboratory(case, Path(folder)).run_job())


class Laboratory:
    """One engine with its cloud, hosts and store."""

    def __init__(self, case: EngineCase, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.clock = LoopClock(START)
        self.store = WatchedStore(folder, lambda: self.cloud.note_change())
        self.training = Training(case.constants, self.clock)
        self.hosts = TraceHosts(
            case.constants, self.clock, self.training, lambda: self.cloud.note_change()
        )
        self.training.tell = self.hosts.tell_engine
        self.cloud = TraceCloud(
            {zone.zone: zone for zone in case.zones},
            case.constants,
            self.clock,
            seed=case.seed,
            watcher=self.hosts,
        )

    async def run_job(self) -> PolicyRun:
        self.put_job(Goal.RUN, "job.submitted")
        epoch = self.store.take_lease(LeaseHolder(pid=1, host="lab"), START, 1e9)
        engine = Engine(self.engine_parts(), epoch=epoch or 0)
        self.cloud.period_s = lambda: min(engine.plan.survey_s, engine.parts.look_s)
        running = asyncio.create_task(engine.run())
        await asyncio.wait((running,), timeout=self.case.length_s)
        if running.done():
            running.result()
            raise RuntimeError(f"the engine ended early: {self.store.slot_messages()}")
        self.training.close()
        found = self.account_for_time()
        self.put_job(Goal.GONE, "job.stopped")
        await self.clock.sleep(DOWN_S)
        engine.stop()
        await running
        if self.cloud.nodes:
            raise RuntimeError(f"the engine left {', '.join(self.cloud.nodes)}")
        self.store.close()
        return found

    def put_job(self, goal: Goal, kind: str) -> None:
        now = self.clock.now()
        job = StoredJob(job=JOB, goal=goal, document={}, made_at=START, changed_at=now)
        event = HistoryEvent(at=now, kind=kind, job=JOB, facts={"who": "lab"})
        self.store.put_job(job, [event])
        self.cloud.note_change()

    def engine_parts(self) -> EngineDeps:
        return EngineDeps(
            store=self.store,
            secrets=SecretFiles(self.folder / "secrets"),
            cloud=self.cloud,
            hosts=self.hosts,
            shelf=LogStore(self.folder / "logs"),
            troubles=TroubleStore(self.folder / "troubles"),
            clock=self.clock,
            lease_clock=self.clock,
            desire=self.desire_slots,
            owner=OWNER,
            outputs=self.folder / "outputs",
            alone=True,
        )

    def desire_slots(self, rows: Mapping[str, StoredJob]) -> DesiredState:
        """Return the job's only slot, with the limits of a job that names none."""
        case, job = self.case, rows[JOB]
        offers = tuple(
            Offer(
                zone=zone.zone, type=f"v4-{8 * case.gang}", runtime="tpu-ubuntu2204-base",
                tier="spot", hosts=case.gang, price=0.97,
            )
            for zone in case.zones
        )  # fmt: skip
        slot = Slot(
            name=f"{JOB}-0",
            job=JOB,
            goal=job.goal,
            offers=offers,
            node_digest="n",
            code_digest="c",
            desired_since=START,
            limits=Limits(),
        )
        launch = LaunchSpec(shell="python train.py", setup=({"shell": "./setup.sh"},))
        return DesiredState(
            desired_slots=DesiredSlots(slots={slot.name: slot}, owner=OWNER),
            order=lambda slot: NodeSpec(),
            launch=lambda slot: launch,
            rows=rows,
        )

    # ---- the account: what really happened to nodes and script, not what the engine believes ----

    def account_for_time(self) -> PolicyRun:
        """Book every second of the traces' time."""
        badput = dict.fromkeys(account.BUCKETS, 0.0)
        nodes = {one.name: one for one in (*self.cloud.past, *self.cloud.nodes.values())}
        any_zone = join_capacities(self.case.zones)
        gap_at, spans = 0.0, self.training.progress.spans
        stepping = [run for run in self.training.all_runs if run.stepped_at < inf]
        for number, (gang, span) in enumerate(zip(stepping, spans, strict=True)):
            book_gap(badput, (gap_at, gang.stepped_at), any_zone, (gang, nodes[gang.node]), number)
            badput[account.SAVE] += span.blocked_s
            gap_at = span.end
        if gap_at < self.case.length_s:
            book_gap(badput, (gap_at, self.case.length_s), any_zone, None, len(stepping))
        lost = (one.reached_s - after.resumed_s for one, after in pairwise(spans))
        badput[account.WASTED] = sum(lost)
        return PolicyRun(
            policy=self.case.policy,
            wanted_s=self.case.length_s,
            productive_s=spans[-1].reached_s if spans else 0.0,
            badput=badput,
        )


def book_gap(
    badput: dict[str, float],
    gap: tuple[float, float],
    any_zone: Capacity,
    then: tuple[GangRun, TraceNode] | None,
    before: int,
) -> None:
    """Book the time without steps until those of a run; `before` runs had steps earlier."""
    start, end = gap
    begun = ready = end
    if then is not None:
        run, node = then
        begun = min(end, run.started_at)
        ready = min(max(start, node.ready_at or start), begun)
    there_s = any_zone.up_between(start, ready)
    if before:
        badput[account.CONTROLLER] += there_s
        badput[account.CAPACITY] += ready - start - there_s
    else:
        badput[account.QUEUE] += ready - start
    badput[account.SETUP] += begun - ready
    badput[account.RESTART] += end - begun
