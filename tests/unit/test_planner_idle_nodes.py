"""READY nodes on which nothing runs: their users are warned, then they are given back."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from tests.unit.planner_scenes import ATTEMPT, NAME, NOW, bid, case, host, seen, stood
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history.apply_event import apply_event
from tpuherd.model.slot_history import History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Limits, RecordEvent
from tpuherd.planner import idle_nodes
from tpuherd.planner.bid_status import NodeNeed
from tpuherd.planner.idle_nodes import IDLE_WARNING_S
from tpuherd.planner.slot_input import SlotContext

HOUR = 3600.0


def idle_case(*, ago: float = 2 * HOUR, limit: float = 24 * HOUR, **changes: Any) -> SlotContext:
    """A node on which nothing has run for so long."""
    at = changes.pop("idle_at", None)
    dear = replace(offer("a"), price=3.69)
    seat = stood(bid=bid(ready_at=1.0, prepared_at=NOW - ago, idle_at=at, offer=dear))
    goal = changes.pop("goal", Goal.IDLE)
    mine = slot(goal=goal, limits=Limits(idle_s=limit))
    found = case(seat, slot=mine, **{"incumbent": seat, **changes})
    found.need = NodeNeed.SEEK
    return found


def recorded(found: SlotContext) -> list[str]:
    actions = [step.action for step in found.steps]
    return [one.event.kind for one in actions if isinstance(one, RecordEvent)]


@pytest.mark.parametrize("goal", [Goal.IDLE, Goal.RUN])
def test_a_node_goes_when_its_time_is_over_and_not_before(goal: Goal) -> None:
    for ago, goes in ((100.0, True), (99.0, False)):
        one = idle_case(ago=ago, limit=100, goal=goal)
        assert bool(idle_nodes.idle_limit_reason(one)) == goes
        assert one.wake_at == (inf if goes else NOW - ago + 100)


def test_the_cause_is_part_of_the_reason() -> None:
    one = idle_case(ago=HOUR, limit=HOUR, goal=Goal.RUN)
    one.slot_history = replace(one.slot_history, failed_why="the secret KEY is missing")
    assert idle_nodes.idle_limit_reason(one) == (
        "nothing has run on it for 1 h: the secret KEY is missing"
    )


def test_what_may_run_or_is_kept_on_purpose_stays() -> None:
    for one in (idle_case(limit=inf), idle_case(ago=9 * HOUR, limit=10 * HOUR)):
        assert idle_nodes.idle_limit_reason(one) == ""
    held = idle_case(ago=9 * HOUR, limit=HOUR)
    held.need = NodeNeed.HOLD
    assert idle_nodes.idle_limit_reason(held) == ""
    for free in (
        idle_case(ago=9 * HOUR, limit=HOUR, incumbent=None),
        idle_case(ago=9 * HOUR, limit=HOUR, incumbent=stood(bid=bid(ready_at=None))),
        idle_case(ago=9 * HOUR, limit=HOUR, incumbent=stood(whole=False)),
        idle_case(ago=9 * HOUR, limit=HOUR, slot_history=SlotHistory(attempt=ATTEMPT)),
    ):
        assert idle_nodes.idle_start(free) is None
        assert idle_nodes.idle_limit_reason(free) == idle_nodes.idle_note(free) == ""
        idle_nodes.warn_of_idle_node(free)
        assert not free.steps
    working = idle_case(ago=9 * HOUR, limit=HOUR)
    working.world = replace(working.world, observed=seen(working=frozenset(["gpt-0"])))
    assert idle_nodes.idle_start(working) is None


def test_the_latest_use_counts() -> None:
    over = replace(ATTEMPT, ended_at=NOW - 60, verdict=Verdict.FAILURE)
    one = idle_case()
    assert idle_nodes.idle_start(one) == NOW - 2 * HOUR
    one.slot_history = replace(one.slot_history, attempt=over)
    assert idle_nodes.idle_start(one) == NOW - 60
    used = idle_case()
    assert used.incumbent is not None
    used.incumbent.hosts = (host(0, used_at=NOW - 5), host(1))
    assert idle_nodes.idle_start(used) == NOW - 5


@pytest.mark.parametrize(
    ("limit", "after"), [(inf, IDLE_WARNING_S), (24 * HOUR, IDLE_WARNING_S), (600.0, 300.0)]
)
def test_the_warning_comes_once(limit: float, after: float) -> None:
    early = idle_case(ago=after - 1, limit=limit)
    idle_nodes.warn_of_idle_node(early)
    assert (recorded(early), early.wake_at) == ([], NOW + 1)
    late = idle_case(ago=after, limit=limit)
    idle_nodes.warn_of_idle_node(late)
    assert recorded(late) == ["bid.idle"]
    assert late.slot_history.bids[NAME].idle_at == NOW
    told = idle_case(ago=after, limit=limit, idle_at=NOW - 1)
    idle_nodes.warn_of_idle_node(told)
    assert recorded(told) == []
    assert idle_nodes.idle_note(told).startswith("; nothing has run on it for")


def test_the_message_has_the_cost_and_the_deletion_time() -> None:
    assert idle_nodes.idle_note(idle_case(idle_at=NOW - 1)) == (
        "; nothing has run on it for 2 h, at $3.69 an hour; it is deleted in 22 h unless something"
        " runs"
    )
    assert idle_nodes.idle_note(idle_case(idle_at=NOW - 1, limit=inf)).endswith("an hour")
    free = idle_case(idle_at=NOW - 1, limit=inf)
    assert free.incumbent is not None
    free.incumbent.bid = replace(free.incumbent.bid, offer=replace(offer("a"), price=0.0))
    assert "$" not in idle_nodes.idle_note(free)
    assert idle_nodes.idle_note(idle_case()) == "", "not warned yet"


def test_use_ends_the_warning() -> None:
    used = idle_case(idle_at=NOW - 500)
    assert used.incumbent is not None
    used.incumbent.hosts = (host(0, used_at=NOW - 5), host(1))
    assert idle_nodes.idle_note(used) == ""
    idle_nodes.warn_of_idle_node(used)
    assert recorded(used) == ["bid.used"]
    assert used.slot_history.bids[NAME].idle_at is None
    before = History(slots={"gpt-0": SlotHistory(bids={NAME: bid(idle_at=5.0)})})
    facts = {"attempt": "gpt-0-a1-me", "number": 1, "bid": NAME, "code_digest": "c"}
    begun = HistoryEvent(at=NOW, kind="attempt.launched", job="gpt", slot="gpt-0", facts=facts)
    assert apply_event(before, begun).slots["gpt-0"].bids[NAME].idle_at is None


def test_a_forgotten_node_is_warned_of_and_given_back() -> None:
    toy = Toy(slot(goal=Goal.IDLE, limits=Limits(idle_s=600)))
    toy.run()
    assert len(toy.kinds("bid.idle")) == 1
    assert "nothing has run on it for 10 min" in toy.slot_history().gave_up_why
    assert not toy.toy_nodes
