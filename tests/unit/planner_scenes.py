"""What tests of the planner start from: one bid with its node and hosts, and running toy worlds."""

from dataclasses import replace
from typing import Any

from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.model.observed import (
    BidObservation,
    HostStatus,
    NodeObservation,
    NodeState,
    ObservedState,
    RequestState,
)
from tpuherd.model.slot_history import AttemptRecord, BidRecord, History, SlotHistory
from tpuherd.model.slots_and_plan import DesiredSlots, EnginePlan
from tpuherd.planner.bid_status import BidStatus
from tpuherd.planner.plan import plan
from tpuherd.planner.policy import BidPhase, Role
from tpuherd.planner.slot_input import PlanContext, SlotContext

NOW = 100_000.0
NAME = "gpt-0-g1-me"


def bid(**changes: Any) -> BidRecord:
    base = BidRecord(
        name=NAME,
        slot="gpt-0",
        generation=1,
        offer=offer("a"),
        node_digest="n",
        nodes=1,
        asked_at=NOW - 900,
        sent_at=NOW - 900,
    )
    return replace(base, **changes)


def node(word: NodeState = NodeState.READY, **changes: Any) -> NodeObservation:
    base = NodeObservation(name=NAME, word=word, state=word.upper(), incarnation="i", hosts=2)
    return replace(base, **changes)


def sight(*words: NodeState, request: RequestState | None = None, **changes: Any) -> BidObservation:
    nodes = tuple(node(word) for word in words)
    return replace(BidObservation(bid=NAME, zone="a", request=request, nodes=nodes), **changes)


def seen(**changes: Any) -> ObservedState:
    return replace(ObservedState(zones=frozenset("a"), surveyed_at=NOW - 1), **changes)


def host(worker: int = 0, **changes: Any) -> HostStatus:
    base = HostStatus(
        node=NAME, worker=worker, incarnation="i", reached=True, heard_at=NOW, boot=f"b{worker}"
    )
    return replace(base, **changes)


ATTEMPT = AttemptRecord(id="gpt-0-a1-me", number=1, bid=NAME, code_digest="c", launched_at=NOW - 50)


def case(
    *bid_statuses: BidStatus, observed: ObservedState | None = None, **changes: Any
) -> SlotContext:
    world = PlanContext(
        desired=DesiredSlots(slots={}, owner="me"), observed=observed or seen(), history=History(),
            now=NOW,
        sure=True, frozen="", unknown={}, probed=set(),
    )  # fmt: skip
    base: dict[str, Any] = {
        "slot": slot(),
        "slot_history": SlotHistory(bids={one.bid.name: one.bid for one in bid_statuses}),
    }
    base |= {"world": world, "now": NOW, "bid_statuses": list(bid_statuses)}
    return SlotContext(**base | changes)


def stood(**changes: Any) -> BidStatus:
    both = (host(0), host(1))
    base: dict[str, Any] = {
        "bid": bid(granted_at=1.0, ready_at=2.0), "stage": BidPhase.READY, "hosts": both,
        "observation": sight(NodeState.READY), "whole": True, "role": Role.INCUMBENT,
    }  # fmt: skip
    return BidStatus(**base | changes)


def actions(found: EnginePlan, kind: type) -> list[Any]:
    return [step.action for step in found.steps if isinstance(step.action, kind)]


def running(**changes: Any) -> Toy:
    """A job under way, and nothing else left of its start."""
    toy = Toy(slot(**changes))
    toy.now = 50_000.0
    toy.lasts = 1e9
    toy.run(until=lambda toy: any(bid.prepared for bid in toy.slot_history().bids.values()))
    for _ in range(14):
        toy.tick()
    assert len(toy.toy_nodes) == 1
    return toy


def swarm(many: int, lasts: float, ticks: int) -> Toy:
    """A job with this many copies, all launched, this many ticks later."""
    toy = Toy(*(slot(f"gpt-{number}") for number in range(many)))
    toy.lasts = lasts
    toy.run(until=lambda toy: len(toy.launches) == many)
    for _ in range(ticks):
        toy.tick()
    return toy


def again(toy: Toy, **changes: Any) -> EnginePlan:
    """What would be done now, if this were seen."""
    observed = replace(toy.observed(), **changes)
    return plan(toy.desired, observed, toy.history, toy.now)


def with_works(toy: Toy, **changes: Any) -> EnginePlan:
    """Plan again, with these reports of the hosts."""
    hosts = {
        name: tuple(
            replace(one, works=tuple(replace(work, **changes) for work in one.works))
            for one in words
        )
        for name, words in toy.hosts().items()
    }
    return again(toy, hosts=hosts)
