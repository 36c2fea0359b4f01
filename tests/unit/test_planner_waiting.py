"""Which slot asks first, which need not wait, and what unhealthy and withdrawn nodes cost."""

from dataclasses import replace

from tests.unit.planner_scenes import ATTEMPT, NOW, bid, case, host, seen, sight, stood
from tests.unit.toy_cloud import ZONES, Toy, offer, slot
from tpuherd.accounting.costs import is_billed
from tpuherd.history.apply_event import apply_event
from tpuherd.model.observed import (
    BidObservation,
    HostRun,
    NodeState,
    ObservedState,
    RequestState,
    RunState,
)
from tpuherd.model.slot_history import History, SlotHistory, bid_cost
from tpuherd.model.slots_and_plan import Ask, DesiredSlots, HistoryEvent, Refusal, Withdraw
from tpuherd.planner.bid_status import UNHEALTHY_S_MAX
from tpuherd.planner.gang_actions import stall_reason
from tpuherd.planner.plan import plan
from tpuherd.planner.retry_limits import total_cost

# ---- the budget of creates -----------------------------------------------------------------------


def test_requests_go_to_the_slots_that_waited_first() -> None:
    old = [slot(f"old-{n}", offers=(offer("a"),), desired_since=NOW - 500) for n in range(100)]
    new = [slot(f"alpha-{n}", offers=(offer("a"),), desired_since=NOW - 5) for n in range(150)]
    desired = DesiredSlots(
        slots={one.name: one for one in (*new, *old)}, owner="me", creates_per_min=60
    )
    found = plan(desired, ObservedState(zones=frozenset("a"), surveyed_at=NOW), History(), NOW)
    asked = [step.action.slot for step in found.steps if isinstance(step.action, Ask)]
    assert len(asked) == 60
    assert all(name.startswith("old-") for name in asked)


def test_a_slot_that_lost_its_node_waits_from_then_on() -> None:
    """It has run for a day: it does not go before one that has waited for an hour."""
    lost = bid(slot="z-0", name="z-0-g1-me", granted_at=1.0, ready_at=2.0, lost_at=NOW - 10,
               lost_how="preempted", withdrawn_at=NOW - 9)  # fmt: skip
    history = History(slots={"z-0": SlotHistory(bids={lost.name: lost}, generation=1)})
    slots = [
        slot("z-0", offers=(offer("a"),), desired_since=NOW - 86400),
        slot("a-0", offers=(offer("a"),), desired_since=NOW - 3600),
    ]
    desired = DesiredSlots(slots={one.name: one for one in slots}, owner="me", creates_per_min=1)
    found = plan(desired, seen(), history, NOW)
    assert [s.action.slot for s in found.steps if isinstance(s.action, Ask)] == ["a-0"]


# ---- quota ---------------------------------------------------------------------------------------


def test_a_slot_with_free_quota_does_not_wait_for_the_pause_of_others() -> None:
    one = (offer("a"),)
    toy = Toy(slot("gpt-0", offers=one))
    toy.lasts = 10_000.0
    toy.run(until=lambda t: t.running())
    sibling = slot("gpt-1", offers=one)
    toy.desired = replace(toy.desired, slots={**toy.desired.slots, "gpt-1": sibling})
    toy.refuses = {"a": Refusal.QUOTA}
    toy.run(until=lambda t: bool(t.kinds("bid.refused")))
    refused_at, toy.refuses = toy.now, {}
    toy.preempt()
    before = len(toy.kinds("bid.requested"))
    for _ in range(12):
        toy.tick()
    asked = toy.kinds("bid.requested")[before:]
    assert asked[0].slot == "gpt-0"
    assert asked[0].at < refused_at + 60.0


# ---- born unhealthy ------------------------------------------------------------------------------


def sicken(toy: Toy, name: str) -> None:
    """It never becomes READY."""
    toy_node = toy.toy_nodes[name]
    toy_node.request, toy_node.node = RequestState.ACTIVE, NodeState.UNHEALTHY


def born_unhealthy(*zones: str) -> tuple[Toy, str]:
    """A toy whose first node is unhealthy from its birth."""
    toy = Toy(slot(offers=tuple(offer(zone) for zone in zones)))
    toy.lasts = 10_000.0
    toy.run(until=lambda t: any(one.node is NodeState.MAKING for one in t.toy_nodes.values()))
    first = next(name for name, one in toy.toy_nodes.items() if one.node is NodeState.MAKING)
    sicken(toy, first)
    return toy, first


def test_a_node_born_unhealthy_is_replaced_at_once() -> None:
    toy, first = born_unhealthy("a")
    before = len(toy.kinds("bid.requested"))
    unhealthy_at = toy.now
    toy.tick()
    assert len(toy.kinds("bid.requested")) == before + 1
    assert "unhealthy (UNHEALTHY)" in toy.last.states["gpt-0"]
    toy.run(until=lambda t: first not in t.toy_nodes)
    assert toy.now < unhealthy_at + 300.0
    toy.run(until=lambda t: t.running())


def test_an_unhealthy_node_is_kept_only_until_a_better_one_is_granted() -> None:
    toy, first = born_unhealthy("a")
    toy.grants = lambda zone: 200.0
    for _ in range(20):
        toy.tick()
        assert toy.toy_nodes[first].ends == float("inf")
    toy.run(until=lambda t: first not in t.toy_nodes or t.toy_nodes[first].ends < float("inf"))
    assert any(one.node is NodeState.MAKING for one in toy.toy_nodes.values())


def test_a_node_that_recovers_is_used() -> None:
    toy, first = born_unhealthy("a")
    toy.grants = lambda zone: float("inf")
    for _ in range(10):
        toy.tick()
    toy.toy_nodes[first].node = NodeState.READY
    toy.run(until=lambda t: t.running())
    assert toy.home is toy.toy_nodes[first]
    assert len(toy.toy_nodes) == 1 or toy.run(until=lambda t: len(t.toy_nodes) == 1)


def test_an_unhealthy_node_that_is_never_replaced_is_withdrawn_in_the_end() -> None:
    toy, first = born_unhealthy("a")
    toy.grants = lambda zone: float("inf")
    unhealthy_at = toy.now
    toy.run(until=lambda t: first not in t.toy_nodes)
    assert unhealthy_at + UNHEALTHY_S_MAX <= toy.now < unhealthy_at + UNHEALTHY_S_MAX + 120.0


def test_of_several_unhealthy_nodes_only_the_newest_is_kept() -> None:
    toy, _ = born_unhealthy("a")
    for _ in range(3):
        toy.run(until=lambda t: any(one.node is NodeState.MAKING for one in t.toy_nodes.values()))
        name = next(name for name, one in toy.toy_nodes.items() if one.node is NodeState.MAKING)
        sicken(toy, name)
        toy.tick()
    toy.grants = lambda zone: float("inf")
    for _ in range(8):
        toy.tick()
    assert len([one for one in toy.toy_nodes.values() if one.node is NodeState.UNHEALTHY]) == 1


def test_zones_without_unhealthy_nodes_are_asked_first() -> None:
    toy = Toy(slot(offers=tuple(offer(zone) for zone in ZONES)))
    toy.desired = replace(toy.desired, hedge=1)
    toy.lasts = 10_000.0
    toy.run(until=lambda t: any(one.node is NodeState.MAKING for one in t.toy_nodes.values()))
    first = next(iter(toy.toy_nodes))
    sicken(toy, first)
    toy.tick()
    newest = toy.kinds("bid.requested")[-1]
    assert newest.facts["offer"]["zone"] != toy.toy_nodes[first].ask.offer.zone


# ---- a request that hangs without a node ---------------------------------------------------------


def lingering(**changes: object) -> History:
    one = bid(granted_at=NOW - 800, ready_at=NOW - 700, withdrawn_at=NOW - 600, **changes)
    return History(slots={"gpt-0": SlotHistory(bids={one.name: one}, generation=1, dropped=True)})


def suspending(*nodes: NodeState) -> BidObservation:
    return sight(*nodes, request=RequestState.ENDING, state="SUSPENDING")


def events_of(observed: ObservedState, history: History) -> list[HistoryEvent]:
    found = plan(DesiredSlots(slots={}, owner="me"), observed, history, NOW)
    return [step.action.event for step in found.steps if hasattr(step.action, "event")]


def test_a_withdrawn_request_without_a_node_costs_nothing_more() -> None:
    history = lingering()
    (event,) = events_of(seen(observations={sight().bid: suspending()}), history)
    assert (event.kind, event.facts["bid"]) == ("bid.nodes_deleted", sight().bid)
    after = apply_event(history, event)
    one = after.slots["gpt-0"].bids[sight().bid]
    assert bid_cost(one, NOW + 9 * 3600) == bid_cost(one, NOW) > 0
    assert total_cost(after.slots["gpt-0"], NOW + 9 * 3600) == total_cost(after.slots["gpt-0"], NOW)
    assert not is_billed(one)
    assert events_of(seen(observations={sight().bid: suspending()}), after) == []


def test_a_node_costs_as_long_as_it_is_listed() -> None:
    assert (
        events_of(seen(observations={sight().bid: suspending(NodeState.LEAVING)}), lingering())
        == []
    )


def test_a_bid_is_deleted_when_the_cloud_allows_it() -> None:
    history = lingering(nodes_deleted_at=NOW - 500)
    gone = replace(suspending(), request=RequestState.LOST, state="SUSPENDED")
    found = plan(
        DesiredSlots(slots={}, owner="me"), seen(observations={gone.bid: gone}), history, NOW
    )
    assert [s.action.bid for s in found.steps if isinstance(s.action, Withdraw)] == [gone.bid]


# ---- missing reports -----------------------------------------------------------------------------


def test_nothing_stalls_in_the_time_before_the_engine_woke_up() -> None:
    """Its clock was set ahead, or its machine has slept: a step may have been missed."""
    long_ago = NOW - 5000
    work = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING, started=long_ago, step=3,
                stepped_at=long_ago, logged_at=long_ago)  # fmt: skip
    one = stood(hosts=(host(0, works=(work,)), host(1, works=(work,))))
    attempt = replace(ATTEMPT, started_at=long_ago, first_step_at=long_ago)
    for awake_at, stalls in ((0.0, True), (NOW - 599, False), (NOW - 601, True)):
        found = case(
            one, observed=seen(awake_at=awake_at), slot_history=SlotHistory(attempt=attempt)
        )
        assert bool(stall_reason(found, one)) is stalls
