"""Runs the real engine for one job on traces, in virtual time, and accounts for what it did."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tpuherd.clock import LoopClock
from tpuherd.engine.dependencies import EngineDeps
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.loop import Engine
from tpuherd.model.node_spec import LaunchSpec, NodeSpec
from tpuherd.model.slots_and_plan import DesiredSlots, Goal, HistoryEvent, Limits, Offer, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd_lab.capacity import Capacity, join_capacities
from tpuherd_lab.constants import Constants
from tpuherd_lab.memory_store import NOWHERE, MemoryStore, NoLogs, NoSecrets, NoTroubles
from tpuherd_lab.peers.faults import fault_times
from tpuherd_lab.policy_run import PolicyRun, digest_of
from tpuherd_lab.slot_account import RunFacts, book_time
from tpuherd_lab.trace_cloud import TraceCloud, TraceNode
from tpuherd_lab.trace_hosts import TraceHosts
from tpuherd_lab.training_gang import Training
from tpuherd_lab.training_progress import TrainingProgress
from tpuherd_lab.virtual_loop import run

START = 1_800_000_000.0
JOB, OWNER = "gpt", "lab"
DOWN_S = 900.0  #: after the end, until the job's nodes must be gone


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCase:
    """What one run is asked to do."""

    policy: str
    traces: str
    seed: int
    gang: int
    length_s: float
    zones: tuple[Capacity, ...]
    constants: Constants
    limits: Limits = field(default_factory=Limits)
    hedge: int | None = None  #: how many zones are bid for at once; None: all
    look_s: float = 5.0  #: between looks at the cloud while a node is held
    fixed_interval_s: float | None = None  #: between saves, instead of the rule of `Run`


def run_engine(case: EngineCase) -> PolicyRun:
    """Run it in virtual time."""
    return run(Laboratory(case).run_job())


class Laboratory:
    """One engine with its cloud, hosts and store."""

    def __init__(self, case: EngineCase) -> None:
        self.case = case
        self.clock = LoopClock(START)
        self.progress = TrainingProgress(
            constants=case.constants, fixed_interval_s=case.fixed_interval_s
        )
        self.store = MemoryStore(lambda: self.cloud.note_change())
        self.training = Training(
            case.constants,
            self.clock,
            self.progress,
            crashes=self.fault_times("crash", case.constants.crash_every_s),
            hangs=self.fault_times("hang", case.constants.hang_every_s),
        )
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
        engine = Engine(self.engine_parts(), epoch=1)
        self.cloud.period_s = lambda: min(engine.plan.survey_s, engine.parts.look_s)
        running = asyncio.create_task(engine.run())
        await asyncio.wait((running,), timeout=self.case.length_s)
        if running.done():
            running.result()
            raise RuntimeError(f"the engine ended early: {self.store.messages}")
        self.training.close()
        facts = self.gather_facts()
        billed = self.billed_until_now()
        self.cloud.count_skipped_looks()
        peak, calls = self.cloud.peak_calls, dict(sorted(self.cloud.calls.items()))
        self.put_job(Goal.GONE, "job.stopped")
        await self.clock.sleep(DOWN_S)
        engine.stop()
        await running
        return self.build_report(facts, billed, calls, peak)

    def fault_times(self, kind: str, every_s: float | None) -> Sequence[float]:
        return fault_times(self.case.seed, kind, every_s, self.case.length_s)

    def put_job(self, goal: Goal, kind: str) -> None:
        now = self.clock.now()
        job = StoredJob(job=JOB, goal=goal, document={}, made_at=START, changed_at=now)
        event = HistoryEvent(at=now, kind=kind, job=JOB, facts={"who": "lab"})
        self.store.put_job(job, [event])

    def engine_parts(self) -> EngineDeps:
        return EngineDeps(
            store=self.store,
            secrets=NoSecrets(),
            cloud=self.cloud,
            hosts=self.hosts,
            shelf=NoLogs(),
            troubles=NoTroubles(),
            clock=self.clock,
            desire=self.desire_slots,
            owner=OWNER,
            outputs=NOWHERE,
            look_s=self.case.look_s,
            alone=True,
        )

    def desire_slots(self, rows: Mapping[str, StoredJob]) -> DesiredState:
        """Return the job's only slot, with the limits of a job that names none."""
        case, job = self.case, rows[JOB]
        offers = tuple(
            Offer(
                zone=zone.zone,
                type=f"v4-{8 * case.gang}",
                runtime="tpu-ubuntu2204-base",
                tier="spot",
                hosts=case.gang,
                price=case.constants.spot_per_hour,
            )
            for zone in case.zones
        )
        slot = Slot(
            name=f"{JOB}-0",
            job=JOB,
            goal=job.goal,
            offers=offers,
            node_digest="n",
            code_digest="c",
            desired_since=START,
            limits=case.limits,
        )
        launch = LaunchSpec(shell="python train.py", setup=({"shell": "./setup.sh"},))
        return DesiredState(
            desired_slots=DesiredSlots(slots={slot.name: slot}, owner=OWNER, hedge=case.hedge),
            order=lambda slot: NodeSpec(),
            launch=lambda slot: launch,
            rows=rows,
        )

    # ---- the account -----------------------------------------------------------------------------

    def all_nodes(self) -> Sequence[TraceNode]:
        return [*self.cloud.past, *self.cloud.nodes.values()]

    def gather_facts(self) -> RunFacts:
        return RunFacts(
            length_s=self.case.length_s,
            runs=self.training.all_runs,
            nodes={node.name: node for node in self.all_nodes()},
            progress=self.progress,
            any_zone=join_capacities(self.case.zones),
            events=tuple(self.store.events),
            began_at=START,
        )

    def billed_until_now(self) -> tuple[float, float]:
        """Return the paid seconds, and those of them on nodes that were never used."""
        now = self.case.length_s
        used = sum(node.billed_between(now) for node in self.all_nodes() if node.used)
        waste = sum(node.billed_between(now) for node in self.all_nodes() if not node.used)
        return used + waste, waste

    def build_report(
        self, facts: RunFacts, billed: tuple[float, float], calls: Mapping[str, int], peak: int
    ) -> PolicyRun:
        case, constants = self.case, self.case.constants
        productive_s, badput, losses, lost_s = book_time(facts)
        regions = {zone.zone: zone.region for zone in case.zones}
        path = [regions[facts.nodes[run.node].offer.zone] for run in facts.runs]
        hops = sum(before != after for before, after in pairwise(path))
        egress_gb = hops * constants.checkpoint_gb
        return PolicyRun(
            policy=case.policy,
            traces=case.traces,
            seed=case.seed,
            wanted_s=case.length_s,
            productive_s=productive_s,
            badput=badput,
            losses=losses,
            steps_lost_s=lost_s,
            billed_s=billed[0],
            hedge_waste_s=billed[1],
            dollars=billed[0] / 3600 * constants.spot_per_hour * case.gang
            + egress_gb * constants.egress_per_gb,
            hops=hops,
            egress_gb=egress_gb,
            api_calls=calls,
            peak_calls_per_minute=peak,
            orphans=len(self.cloud.nodes),
            peak_nodes=self.cloud.peak_nodes,
            digest=digest_of(
                (one.at, one.kind, one.slot, dict(one.facts)) for one in self.store.events
            ),
        )
