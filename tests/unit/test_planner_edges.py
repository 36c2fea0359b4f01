"""Boundaries of the planner: exact times, limits, and words of a reason."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from tests.unit.planner_scenes import (  # fmt: skip
    ATTEMPT,
    NAME,
    NOW,
    actions,
    again,
    bid,
    case,
    host,
    seen,
    sight,
    stood,
)
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history.apply_event import apply_event
from tpuherd.model.observed import HostRun, NodeState, RunState
from tpuherd.model.slot_history import AttemptRecord, History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import (
    Ask,
    Goal,
    HistoryEvent,
    Launch,
    Limits,
    Refusal,
    RequestKind,
)
from tpuherd.planner import bid_status, gang_actions, verdict
from tpuherd.planner.bid_status import NodeNeed
from tpuherd.planner.gang_progress import build_gang
from tpuherd.planner.policy import Role
from tpuherd.planner.retry_limits import CHIPS_PAUSE_S
from tpuherd.planner.verdict import AttemptEnd, judge_attempt

WELL = SlotHistory(bids={NAME: bid(prepared="c", prepared_at=NOW - 100)})


def event(kind: str, **facts: object) -> HistoryEvent:
    return HistoryEvent(at=NOW, kind=kind, job="gpt", slot="gpt-0", facts=facts)


# ---- asking --------------------------------------------------------------------------------------


def test_the_slot_that_waited_longest_asks_first() -> None:
    one, late = (offer("a"),), NOW - 1
    toy = Toy(slot("gpt-0", offers=one), slot("gpt-1", offers=one, desired_since=late))
    toy.now = NOW
    toy.desired = replace(toy.desired, creates_per_min=1)
    for first, second, asks in ((10.0, 100.0, "gpt-1"), (100.0, 10.0, "gpt-0"), (5, None, "gpt-0")):
        seeks = (first, second)
        slots = {
            f"gpt-{one}": SlotHistory(searching_at=None if ago is None else NOW - ago)
            for one, ago in enumerate(seeks)
        }
        toy.history = History(slots=slots)
        assert [ask.slot for ask in actions(again(toy), Ask)] == [asks]


def test_a_queued_request_is_no_probe_for_direct_ones() -> None:
    toy = Toy(
        slot("gpt-0", offers=(offer("a"),)),
        slot("gpt-1", offers=(offer("a", kind=RequestKind.DIRECT),)),
    )
    toy.refuses = {"a": Refusal.STOCKOUT}
    toy.tick()
    toy.run(until=lambda toy: not any(one.bids for one in toy.history.slots.values()))
    toy.now += 7200
    assert len(actions(again(toy), Ask)) == 2


# ---- launching -----------------------------------------------------------------------------------


def test_a_pause_ends_on_time() -> None:
    for now, launches in ((NOW, True), (NOW - 0.5, False)):
        seat = stood(bid=bid(faults=1))
        one = case(seat, now=now)
        one.slot_history = replace(one.slot_history, failed_at=NOW - CHIPS_PAUSE_S)
        gang_actions.launch_attempt(one, seat)
        assert bool(one.steps) == launches
        assert one.wake_at == (float("inf") if launches else NOW)


def test_a_launch_has_its_reason() -> None:
    plain, over = f"{NAME} is prepared", replace(ATTEMPT, verdict=Verdict.FAILURE)
    for attempt, first, why in [
        (None, None, plain),
        (over, None, plain),  # of a job that was submitted again
        (replace(over, verdict=None), 1.0, plain),
        (over, 1.0, f"{plain}, and attempt 1 ended: failure"),
    ]:
        one, seat = case(stood()), stood()
        one.slot_history = replace(one.slot_history, attempt=attempt, first_launch_at=first)
        gang_actions.launch_attempt(one, seat)
        assert [step.why for step in one.steps] == [why]
        (action,) = (step.action for step in one.steps)
        assert isinstance(action, Launch) and action.resume == (first is not None)


def test_only_slots_of_sweeps_run_trials() -> None:
    one, seat = case(stood()), stood()
    one.slot_history = replace(one.slot_history, trial=3)
    gang_actions.launch_attempt(one, seat)
    (action,) = (step.action for step in one.steps)
    assert isinstance(action, Launch) and action.trial is None


def test_an_attempt_on_one_host_of_two_may_still_run() -> None:
    runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
    over = replace(runs, word=RunState.ENDED)
    for first, second, lives in ((runs, over, True), (over, runs, True), (over, over, False)):
        here = stood(hosts=(host(0, works=(first,)), host(1, works=(second,))))
        new = stood(bid=bid(name="gpt-0-g2-me", generation=2))
        one = case(here, new, home=here)
        one.slot_history = replace(
            one.slot_history, attempt=replace(ATTEMPT, ended_at=NOW - 9, sure=False)
        )
        assert gang_actions.may_still_run_elsewhere(one, new) == lives


# ---- collecting, and giving back -----------------------------------------------------------------


def test_a_failed_collect_is_retried_when_its_pause_is_over() -> None:
    due = NOW - 50 + gang_actions.UNCOLLECTED_S
    for now, tries in ((due, True), (due - 0.5, False)):
        seat = stood(bid=bid(uncollected=1, uncollected_at=NOW - 50, ready_at=2.0))
        one = case(seat, slot=slot(outputs=True), now=now, home=seat)
        attempt = replace(ATTEMPT, ended_at=NOW - 60, verdict=Verdict.SUCCESS)
        one.slot_history = replace(one.slot_history, attempt=attempt)
        gang_actions.collect_outputs(one, seat)
        assert bool(one.steps) == tries
        assert one.wake_at == (float("inf") if tries else due)


def test_a_kept_node_is_withdrawn_after_its_idle_time() -> None:
    limits = Limits(idle_s=100)
    for ago, goes in ((100.0, True), (99.0, False)):
        seat = stood(bid=bid(ready_at=2.0, prepared_at=NOW - ago))
        one = case(seat, slot=slot(goal=Goal.IDLE, limits=limits), incumbent=seat)
        assert bool(gang_actions.idle_limit_reason(one)) == goes
        assert one.wake_at == (float("inf") if goes else NOW - ago + 100)


# ---- what is remembered --------------------------------------------------------------------------


def test_an_event_of_an_unknown_trial_creates_no_sweep() -> None:
    told = event("trial.reported", trial=7, step=1, value=0.5)
    assert apply_event(History(), told).sweeps == {}


def test_a_finished_trial_uses_no_budget_of_the_next() -> None:
    attempt = replace(ATTEMPT, trial=1)
    ended = event("attempt.ended", attempt=attempt.id, verdict="failure", why="w")
    for trial, failures in ((1, 1), (2, 0), (None, 0)):
        history = History(slots={"gpt-0": replace(WELL, attempt=attempt, trial=trial)})
        found = apply_event(history, ended).slots["gpt-0"]
        assert (found.failures, found.failed_at) == (failures, NOW if failures else None)


@pytest.mark.parametrize("kind", ["trial.ended", "trial.waiting"])
def test_the_end_of_another_trial_leaves_the_slot_alone(kind: str) -> None:
    history = History(slots={"gpt-0": SlotHistory(trial=2, failures=1)})
    said = {"trial": 1, "outcome": "failed", "why": "w", "usage": {}}
    assert apply_event(history, event(kind, **said)).slots["gpt-0"].trial == 2
    assert apply_event(history, event(kind, **said | {"trial": 2})).slots["gpt-0"].trial is None


# ---- standings -----------------------------------------------------------------------------------


def test_five_failures_in_a_row_are_too_many() -> None:
    for what in ("node_failures", "unprepared"):
        for many, too_often in ((4, False), (5, True)):
            found, _ = bid_status.needs_replacement(
                stood(bid=bid(**{what: many})), seen(), History(), NOW
            )
            assert bool(found) == too_often


def test_why_a_node_is_unhealthy() -> None:
    sick = {"unhealthy_at": NOW - bid_status.UNHEALTHY_S_MAX}
    old = NOW - bid_status.MAKING_S_MAX
    far = (host(0, reached=False, heard_at=NOW - bid_status.UNHEALTHY_S_MAX), host(1))
    for one, why in [
        (stood(bid=bid(**sick, ready_at=2.0)), "it has been unhealthy for too long"),
        (stood(bid=bid(granted_at=old)), "it has not become READY in time"),
        (stood(bid=bid(granted_at=old, unhealthy_at=NOW - 1)), "it has not become READY in time"),
        (stood(hosts=far, whole=False), "its hosts have not responded for too long"),
    ]:
        assert bid_status.needs_replacement(one, seen(), History(), NOW) == (why, None)


def test_of_two_held_bids_the_used_one_fills_the_slot() -> None:
    both = [
        stood(bid=bid(name=f"g{number}", generation=number, granted_at=granted, prepared=code))
        for number, granted, code in ((1, 50.0, ""), (2, 60.0, "c"), (3, 40.0, ""))
    ]
    attempt = replace(ATTEMPT, bid="g1")
    for slot_history, name in ((SlotHistory(attempt=attempt), "g1"), (SlotHistory(), "g2")):
        for order in (both, both[::-1]):
            assert bid_status.choose_incumbent(order, slot_history).bid.name == name
    assert bid_status.choose_incumbent([both[0], both[2]], SlotHistory()).bid.name == "g3"
    assert bid_status.choose_incumbent([both[0]], SlotHistory()) is both[0]
    assert case(both[0], need=NodeNeed.NONE).bid_statuses[0].role is Role.INCUMBENT


# ---- verdicts ------------------------------------------------------------------------------------


def concluded(word: RunState, attempt: AttemptRecord = ATTEMPT, **changes: Any) -> AttemptEnd:
    """What comes of it when both hosts say this, and a look at the cloud shows the node."""
    one = replace(
        HostRun(attempt=ATTEMPT.id, word=word, started=NOW - 40, ended=NOW - 30), **changes
    )
    hosts = (host(0, works=(one,)), host(1, works=(one,)))
    attempt = replace(attempt, boots=("b0", "b1"), started_at=NOW - 40)
    mine = bid(granted_at=1.0, ready_at=2.0)
    observed = seen(observations={NAME: sight(NodeState.READY)}, hosts={NAME: hosts})
    found = judge_attempt(
        slot(), SlotHistory(attempt=attempt, bids={NAME: mine}), mine, observed, NOW
    )
    assert isinstance(found, AttemptEnd)
    return found


def test_the_last_sign_of_life_is_the_latest_one() -> None:
    over = HostRun(attempt="a", word=RunState.ENDED)
    for started, logged, stepped in permutations((1.0, 2.0, 3.0)):
        work = replace(over, started=started, logged_at=logged, stepped_at=stepped)
        assert verdict.run_last_sign(work) == 3.0
        assert verdict.run_last_sign(replace(work, ended=2.5)) == 2.5


def test_an_attempt_stopped_for_stalling_has_stalled() -> None:
    for stalled, kind in ((True, Verdict.STALLED), (False, Verdict.STOPPED)):
        told = replace(ATTEMPT, stopping_at=NOW - 35, stopping_why="w", stalled=stalled)
        found = concluded(RunState.ENDED, told, signal=15, termed=True)
        assert (found.verdict, found.why) == (kind, "attempt 1 ended: w")


def test_an_attempt_that_never_started_says_nothing_about_chips() -> None:
    found = concluded(RunState.ENDED, exit=1, why=f"{verdict.UNBORN}: the disk is full")
    assert found.verdict is Verdict.NODE_FAULT
    assert found.why.endswith(f": {verdict.UNBORN}: the disk is full")


def test_an_end_without_a_known_cause_is_lost() -> None:
    over = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 30)
    half = bid(offer=offer("a", hosts=3))  # the third host does not respond
    for termed, why in (
        (True, "something other than herd stopped it"),
        (False, "for an unknown reason"),
    ):
        works = [replace(over, termed=termed)] * 2
        hosts = tuple(host(worker, works=(one,)) for worker, one in enumerate(works))
        gang = build_gang(slot(), ATTEMPT, half, seen(hosts={NAME: hosts}))
        assert verdict.command_verdict(gang, works, 0) == (Verdict.LOST, why, None)


def test_without_open_work_the_cloud_is_surveyed_once_a_minute() -> None:
    assert case().survey_s == 60.0
    assert again(Toy()).survey_s == 60.0
