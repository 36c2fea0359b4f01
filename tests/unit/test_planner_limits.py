"""Numbers, budgets, pauses and limits of a slot."""

from dataclasses import replace
from math import inf
from types import ModuleType
from typing import Any

import pytest

from tests.unit.planner_scenes import NAME, NOW, bid
from tests.unit.toy_cloud import slot
from tpuherd.history import apply_bid_events, apply_zone_events
from tpuherd.model.slot_history import AttemptRecord, GiveUpCode, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import Goal, Limits, Slot
from tpuherd.planner import (
    bid_status,
    bidding,
    deletion_guard,
    gang_actions,
    gang_progress,
    retry_limits,
    step_events,
    verdict,
)


def test_the_documented_numbers() -> None:
    """docs/explanation/planner.md says these in words."""
    told: dict[ModuleType, dict[str, float]] = {
        bid_status: {"LAG_S": 60, "UNHEALTHY_S_MAX": 900, "BOOT_S_MAX": 3600, "MAKING_S_MAX": 7200,
                "FAULTS_MAX": 2, "NODE_FAILURES_MAX": 5},
        deletion_guard: {"HOSTS_MIN": 4, "SHARE": 0.5, "BIDS_MIN": 2, "BELIEVED_S": 60},
        gang_progress: {"HOLD_S": 20, "STOP_S": 45, "NOTICE_S": 5, "LAUNCH_S": 10,
                        "LAUNCHES_MAX": 5},
        retry_limits: {"PAUSE_S_MAX": 300, "CHIPS_PAUSE_S": 15},
        bidding: {"AGAIN_S": 10, "AGAIN_S_MAX": 300, "DRAIN_S": 30, "COLLECT_S_MAX": 600,
                  "COLLECTS_MAX": 3, "FULL_S": 3600},
        gang_actions: {"UNCOLLECTED_S": 15, "UNCOLLECTED_S_MAX": 300},
        apply_zone_events: {"KEPT": 20, "PAUSE_S_MIN": 15, "PAUSE_S_MAX": 600, "PAUSE_LESS_S": 60},
        apply_bid_events: {"GONE_KEPT": 1000},
        verdict: {"LINES": 20, "CHIPS_MAX": 4, "INTERRUPTED": 75},
        step_events: {"SAVED_S": 60},
    }  # fmt: skip
    for room, numbers in told.items():
        assert {name: getattr(room, name) for name in numbers} == numbers, room.__name__


def test_default_limits_of_a_slot() -> None:
    assert Limits() == Limits(
        failures=3, preemptions=None, stalls=3, stall_s=600, first_step_s=2700, lifetime_s=inf,
        idle_s=inf, cost=inf, done_keep_s=0, failed_keep_s=0, patience_s=600, grace_s=30,
        notice_grace_s=25,
    )  # fmt: skip


def limit_reason(wanted_slot: Slot, slot_history: SlotHistory) -> str:
    found = retry_limits.reached_limit(wanted_slot, slot_history, NOW)
    assert found is not None
    return found.why


def test_lifetime_and_cost() -> None:
    wanted_slot = slot(limits=Limits(lifetime_s=100, cost=2.0))
    assert not retry_limits.reached_limit(wanted_slot, SlotHistory(), NOW)
    assert not retry_limits.reached_limit(wanted_slot, SlotHistory(first_launch_at=NOW - 99), NOW)
    assert "lifetime" in limit_reason(wanted_slot, SlotHistory(first_launch_at=NOW - 100))
    old = SlotHistory(first_launch_at=NOW - 100)
    assert not retry_limits.reached_limit(replace(wanted_slot, goal=Goal.IDLE), old, NOW)
    held = SlotHistory(spent=1.0, bids={NAME: bid(granted_at=NOW - 3599)})
    for goal in (Goal.RUN, Goal.IDLE):
        assert not retry_limits.reached_limit(replace(wanted_slot, goal=goal), held, NOW)
        found = retry_limits.reached_limit(replace(wanted_slot, goal=goal), held, NOW + 1)
        assert found is not None and found.code is GiveUpCode.COST
        assert "2.00 dollars, the limit is 2.00" in found.why
    assert sorted(retry_limits.limit_times(wanted_slot, held, NOW)) == [NOW + 1]
    times = retry_limits.limit_times(wanted_slot, replace(held, first_launch_at=NOW), NOW)
    assert sorted(times) == [
        NOW + 1, NOW + 100,
    ]  # fmt: skip
    assert list(retry_limits.limit_times(slot(), held, NOW)) == []
    assert list(retry_limits.limit_times(wanted_slot, SlotHistory(spent=1.0), NOW)) == []
    lost = SlotHistory(bids={NAME: bid(granted_at=NOW - 50, lost_at=NOW - 10)})
    assert list(retry_limits.limit_times(wanted_slot, lost, NOW)) == []


def test_a_script_that_refuses_to_run_is_believed_until_something_changes() -> None:
    refused = AttemptRecord(
        id="a", number=1, bid=NAME, code_digest="", launched_at=NOW, verdict=Verdict.FAILURE,
        exit=78, lines=("herd: error: too few shards", "herd: left in step 2", "bye"),
        unfit=True,
    )  # fmt: skip
    slot_history = SlotHistory(attempt=refused, failed_at=NOW, failed_why="w0 exited with 78")
    assert limit_reason(slot(), slot_history) == "it can't run like this: too few shards"
    own = replace(refused, lines=("loading", "batch must be divisible by 8"))
    said = limit_reason(slot(), replace(slot_history, attempt=own))
    assert said == "it can't run like this: batch must be divisible by 8"
    silent = replace(refused, lines=())
    said = limit_reason(slot(), replace(slot_history, attempt=silent))
    assert said == "it can't run like this: w0 exited with 78"
    assert not retry_limits.reached_limit(slot(goal=Goal.IDLE), slot_history, NOW)
    assert not retry_limits.reached_limit(
        slot(), replace(slot_history, failed_at=None), NOW
    )  # as job.changed does
    for change in (
        {"unfit": False},
        {"verdict": Verdict.NODE_FAULT},
        {"verdict": None},
    ):
        other = replace(refused, **change)
        assert not retry_limits.reached_limit(slot(), replace(slot_history, attempt=other), NOW)


def test_the_last_failure_is_in_the_message() -> None:
    wanted_slot = slot(limits=Limits(failures=0))
    said = limit_reason(wanted_slot, SlotHistory(failures=1, failed_why="w0 exited with 3"))
    assert said == "it failed once without progress, none is forgiven: w0 exited with 3"
    assert limit_reason(wanted_slot, SlotHistory(failures=1)).endswith("forgiven")


@pytest.mark.parametrize(
    ("failures", "changes", "pause"),
    [
        (0, {}, 0), (1, {}, 0), (2, {}, 10), (3, {}, 20), (4, {}, 40), (9, {}, 300), (99, {}, 300),
        (1, {"node_failures": 1}, 10), (0, {"node_failures": 1}, 0), (0, {"node_failures": 3}, 20),
        (0, {"unprepared": 1}, 10), (0, {"unprepared": 2}, 10), (1, {"unprepared": 2}, 20),
        (0, {"missing_inputs": 1}, 10), (0, {"missing_inputs": 3}, 20),
        (0, {"faults": 1}, 15), (1, {"faults": 1}, 15), (2, {"faults": 1}, 20),
    ],
)  # fmt: skip
def test_pauses_grow(failures: int, changes: dict[str, Any], pause: float) -> None:
    slot_history = SlotHistory(failures=failures, failed_at=NOW)
    assert retry_limits.pause_until(slot_history, bid(**changes)) == NOW + pause
    assert retry_limits.pause_until(replace(slot_history, failed_at=None), bid(**changes)) == 0.0


def test_durations_in_words() -> None:
    said = {59: "less than a minute", 60: "1 min", 3599: "59 min", 3600: "1 h", 86399: "23 h",
            86400: "1 d", 200000: "2 d"}  # fmt: skip
    assert {seconds: retry_limits.format_age(seconds) for seconds in said} == said
