"""A toy cloud with toy hosts in one file: the planner runs with it in a loop until at rest."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tpuherd.history.apply_event import apply_event, events_before_step
from tpuherd.model.observed import (
    BidObservation,
    HostRun,
    HostStatus,
    NodeObservation,
    NodeState,
    ObservedState,
    Outlook,
    RequestState,
    RunState,
)
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    DesiredSlots,
    EnginePlan,
    Goal,
    HistoryEvent,
    Launch,
    Offer,
    PlannedStep,
    Prepare,
    RecordEvent,
    Refusal,
    Slot,
    Stop,
    Withdraw,
)
from tpuherd.planner.bid_status import host_fingerprint
from tpuherd.planner.plan import plan

ZONES = ("a", "b", "c")


def offer(zone: str = "a", **changes: object) -> Offer:
    base = Offer(zone=zone, type="v4-16", runtime="r", tier="spot", hosts=2, price=1.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def slot(name: str = "gpt-0", **changes: object) -> Slot:
    base = Slot(
        name=name,
        job=name.rpartition("-")[0],
        goal=Goal.RUN,
        offers=tuple(offer(zone) for zone in ZONES),
        node_digest="n",
        code_digest="c",
        desired_since=0.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@dataclass
class Process:
    """The command of one attempt on one host."""

    started: float
    ended: float | None = None
    exit: int | None = None
    termed: bool = False
    lost: bool = False
    tail: tuple[str, ...] = ()
    step: int | None = None
    saved: int | None = None
    resumed: int | None = None
    restore_s: float | None = None


@dataclass
class ToyNode:
    """A request with its node, as the toy cloud has it."""

    ask: Ask
    made: float
    request: RequestState = RequestState.QUEUED
    node: NodeState | None = None
    ready: float = inf
    ends: float = inf  #: when its deletion is over
    boot: int = 1
    cut: bool = False  #: its hosts are not reached
    deadly: bool = False
    leaving_since: float | None = None  #: its hosts shut down
    heard: float = 0.0
    prepared: str = ""
    work: dict[str, dict[int, Process]] = field(default_factory=dict)


def outlook_of(toy_node: ToyNode) -> Outlook:
    if toy_node.deadly:
        return Outlook.GONE
    return Outlook.STAYS if toy_node.leaving_since is None else Outlook.RETURNS


class Toy:
    """Time, a cloud, hosts, a log."""

    def __init__(self, *slots: Slot, grants: Callable[[str], float] = lambda zone: 20.0) -> None:
        self.now = 1000.0
        self.desired = DesiredSlots(slots={one.name: one for one in slots}, owner="me")
        self.history = History()
        self.toy_nodes: dict[str, ToyNode] = {}
        self.events: list[HistoryEvent] = []
        self.grants = grants  #: seconds until a zone grants; inf: never
        self.machines = inf  #: how many nodes a zone has at once
        self.zones = frozenset(ZONES)
        self.lasts = 60.0  #: how long the command runs
        self.exit = 0
        self.refuses: dict[str, Refusal] = {}
        self.losing: set[type] = set()  #: actions that never arrive
        self.deafened: set[type] = set()  #: and those whose answers never arrive
        self.most = 0
        self.launches: list[str] = []
        self.calling: frozenset[str] = frozenset()
        self.survey: dict[str, BidObservation] | None = None  #: an old one, while set
        self.last = EnginePlan()

    # -- what is seen

    def sights(self) -> dict[str, BidObservation]:
        return {
            name: BidObservation(
                bid=name,
                zone=toy_node.ask.offer.zone,
                request=toy_node.request,
                nodes=()
                if toy_node.node is None
                else (
                    NodeObservation(
                        name=name,
                        word=toy_node.node,
                        state=toy_node.node.value.upper(),
                        incarnation=f"{name}@{toy_node.made:.0f}",
                        hosts=2,
                    ),
                ),
                state=toy_node.request.value.upper(),
            )
            for name, toy_node in self.toy_nodes.items()
            if toy_node.ask.offer.zone in self.zones
        }

    def observed(self) -> ObservedState:
        return ObservedState(
            observations=self.sights() if self.survey is None else self.survey,
            zones=self.zones,
            surveyed_at=self.now - 0.5,
            hosts=self.hosts(),
            calling=self.calling,
        )

    def hosts(self) -> dict[str, tuple[HostStatus, ...]]:
        return {
            name: tuple(self.host(name, toy_node, worker) for worker in range(2))
            for name, toy_node in self.toy_nodes.items()
            if toy_node.node in {NodeState.READY, NodeState.UNHEALTHY}
        }

    def host(self, name: str, toy_node: ToyNode, worker: int) -> HostStatus:
        works = tuple(
            work_of(attempt, processes[worker])
            for attempt, processes in toy_node.work.items()
            if worker in processes
        )
        return HostStatus(
            node=name,
            worker=worker,
            incarnation=f"{name}@{toy_node.made:.0f}",
            reached=not toy_node.cut,
            heard_at=toy_node.heard,
            boot=f"{name}/{worker}/{toy_node.boot}",
            outlook=outlook_of(toy_node),
            notice="preempted" if toy_node.deadly else "",
            notice_at=toy_node.leaving_since,
            works=works,
        )

    # -- time

    def advance(self) -> None:
        for name, toy_node in list(self.toy_nodes.items()):
            if toy_node.ends <= self.now:
                del self.toy_nodes[name]
                continue
            zone = toy_node.ask.offer.zone
            due = toy_node.made + self.grants(zone)
            free = self.granted_in(zone) < self.machines
            if toy_node.request is RequestState.QUEUED and due <= self.now and free:
                toy_node.request, toy_node.node = RequestState.GRANTED, NodeState.MAKING
                toy_node.ready = self.now + 30
            if toy_node.node is NodeState.MAKING and toy_node.ready <= self.now:
                toy_node.request, toy_node.node = RequestState.ACTIVE, NodeState.READY
            if toy_node.node is NodeState.READY and not toy_node.cut:
                toy_node.heard = self.now
            for processes in toy_node.work.values():
                for process in processes.values():
                    if process.ended is None and process.started + self.lasts <= self.now:
                        process.ended, process.exit = self.now, self.exit

    def granted_in(self, zone: str) -> int:
        """How many nodes of a zone are taken, also by what is being deleted."""
        return sum(
            one.node is not None and one.ask.offer.zone == zone for one in self.toy_nodes.values()
        )

    def tick(self, seconds: float = 5.0) -> EnginePlan:
        self.now += seconds
        self.advance()
        found = plan(self.desired, self.observed(), self.history, self.now)
        for step in found.steps:
            for event in events_before_step(step, self.now):
                self.note(event)
        for step in found.steps:
            if type(step.action) not in self.losing:
                self.do(step)
        alive = [
            one
            for one in self.toy_nodes.values()
            if one.node is NodeState.READY and one.ends == inf
        ]
        self.most = max(self.most, len(alive))
        self.check()
        self.last = found
        return found

    def note(self, event: HistoryEvent) -> None:
        self.events.append(event)
        self.history = apply_event(self.history, event)

    def tell(self, kind: str, step: PlannedStep, **facts: object) -> None:
        if type(step.action) in self.deafened:
            return
        name = getattr(step.action, "slot", "")
        event = HistoryEvent(at=self.now, kind=kind, job="gpt", slot=name, facts=facts)
        self.note(event)

    def check(self) -> None:
        """Never two attempts of one slot alive at once."""
        alive: dict[str, set[str]] = {}
        for toy_node in self.toy_nodes.values():
            for attempt, processes in toy_node.work.items():
                if any(one.ended is None and not one.lost for one in processes.values()):
                    alive.setdefault(toy_node.ask.slot, set()).add(attempt)
        assert all(len(attempts) == 1 for attempts in alive.values()), alive

    # -- what is done

    def do(self, step: PlannedStep) -> None:
        actions: dict[type, Callable[[PlannedStep, Any], None]] = {
            Ask: self.create,
            Withdraw: self.withdraw,
            Prepare: self.prepare,
            Launch: self.launch,
            Stop: self.stop,
            Collect: self.collect,
            RecordEvent: lambda step, action: None,
        }
        actions[type(step.action)](step, step.action)

    def withdraw(self, step: PlannedStep, action: Withdraw) -> None:
        toy_node = self.toy_nodes.get(action.bid)
        if toy_node is not None and toy_node.ends == inf:
            assert toy_node.request is not RequestState.ENDING
            toy_node.ends, toy_node.request = self.now + 20, RequestState.LEAVING
            toy_node.node = None if toy_node.node is None else NodeState.LEAVING
            toy_node.work.clear()

    def prepare(self, step: PlannedStep, action: Prepare) -> None:
        if action.bid in self.toy_nodes:
            on = [host_fingerprint(host) for host in self.hosts().get(action.bid, ())]
            code = action.code_digest
            self.tell("slot.prepared", step, bid=action.bid, code_digest=code, hosts=on)

    def launch(self, step: PlannedStep, action: Launch) -> None:
        toy_node = self.toy_nodes.get(action.bid)
        if toy_node is not None and toy_node.node is NodeState.READY and not toy_node.cut:
            if action.attempt not in self.launches:
                self.launches.append(action.attempt)
            processes = {worker: Process(started=self.now) for worker in range(2)}
            toy_node.work.setdefault(action.attempt, processes)
            self.tell("attempt.started", step, attempt=action.attempt)

    def stop(self, step: PlannedStep, action: Stop) -> None:
        toy_node = self.toy_nodes.get(action.bid)
        if toy_node is not None and not toy_node.cut:
            for process in toy_node.work.get(action.attempt, {}).values():
                if process.ended is None:
                    process.ended, process.exit, process.termed = self.now, 0, True

    def collect(self, step: PlannedStep, action: Collect) -> None:
        self.tell("slot.collected", step, bid=action.bid, attempt=action.attempt)

    def create(self, step: PlannedStep, ask: Ask) -> None:
        refusal = self.refuses.get(ask.offer.zone)
        if refusal is not None:
            self.tell("bid.refused", step, bid=ask.bid, refusal=str(refusal), message="no")
            return
        self.toy_nodes.setdefault(ask.bid, ToyNode(ask=ask, made=self.now))
        self.tell("bid.accepted", step, bid=ask.bid)

    # -- what happens

    def run(self, many: int = 400, until: Callable[["Toy"], bool] | None = None) -> "Toy":
        for _ in range(many):
            self.tick()
            if self.last.rest if until is None else until(self):
                return self
        raise AssertionError(f"not there after {many} ticks: {self.last.states}")

    def slot_history(self, name: str = "gpt-0") -> SlotHistory:
        return self.history.slots.get(name, SlotHistory())

    def kinds(self, kind: str) -> list[HistoryEvent]:
        return [event for event in self.events if event.kind == kind]

    @property
    def home(self) -> ToyNode:
        attempt = self.slot_history().attempt
        assert attempt is not None
        return self.toy_nodes[attempt.bid]

    def has_ended_attempt(self) -> bool:
        attempt = self.slot_history().attempt
        return attempt is not None and attempt.ended_at is not None

    def running(self) -> bool:
        attempt = self.slot_history().attempt
        return attempt is not None and attempt.ended_at is None and attempt.started_at is not None

    def change_job(self, **changes: object) -> None:
        slots = {
            name: replace(one, **changes)  # type: ignore[arg-type]
            for name, one in self.desired.slots.items()
        }
        self.desired = replace(self.desired, slots=slots)

    def preempt(self) -> None:
        self.home.request, self.home.node = RequestState.LOST, NodeState.LOST
        self.home.work.clear()

    def reboot(self) -> None:
        self.home.boot += 1
        for processes in self.home.work.values():
            for process in processes.values():
                process.lost = process.lost or process.ended is None


def work_of(attempt: str, process: Process) -> HostRun:
    word = RunState.RUNNING
    if process.lost:
        word = RunState.LOST
    elif process.ended is not None:
        word = RunState.ENDED
    return HostRun(
        attempt=attempt,
        word=word,
        started=process.started,
        ended=process.ended,
        exit=process.exit,
        termed=process.termed,
        tail=process.tail,
        step=process.step,
        saved=process.saved,
        resumed=process.resumed,
        restore_s=process.restore_s,
        logged_at=process.started,
        drained=True,
    )
