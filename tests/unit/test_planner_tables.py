"""The plan for one bid in every state it can be in: what is done, if and only if."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest

from tests.unit import planner_scenes
from tests.unit.planner_scenes import NAME, NOW, actions, node
from tests.unit.toy_cloud import slot
from tpuherd.model.observed import (
    BidObservation,
    HostRun,
    NodeState,
    ObservedState,
    RequestState,
    RunState,
)
from tpuherd.model.slot_history import AttemptRecord, History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    DesiredSlots,
    EnginePlan,
    Goal,
    Launch,
    Prepare,
    RecordEvent,
    Slot,
    Stop,
    Withdraw,
)
from tpuherd.planner.plan import plan
from tpuherd.planner.policy import BIDS, GANG, BidAction, BidPhase, GangAction, GangState, Role


def test_every_role_and_phase_has_an_action() -> None:
    assert set(BIDS) == set(Role)
    assert all(set(row) == set(BidPhase) for row in BIDS.values())


def test_every_gang_state_and_goal_has_an_action() -> None:
    assert set(GANG) == set(GangState)
    assert all(set(row) == set(Goal) for row in GANG.values())


GOES = {Role.SURPLUS, Role.DEAD, Role.UNWANTED, Role.WITHDRAWN}


def moved(role: Role, stage: BidPhase) -> BidAction:
    """The table of bids, as rules."""
    if role is Role.ORPHAN or stage in {BidPhase.CALLING, BidPhase.HIDDEN}:
        return BidAction.LEAVE
    if stage in {BidPhase.ENDING, BidPhase.LEAVING}:
        return BidAction.WAIT  # nothing can be done to what is under way
    if stage is BidPhase.UNKNOWN:
        return BidAction.WITHDRAW if role in {Role.UNWANTED, Role.WITHDRAWN} else BidAction.LEAVE
    if role is Role.WITHDRAWN and stage in {BidPhase.UNSEEN, BidPhase.VANISHED}:
        return BidAction.WAIT
    if stage is BidPhase.UNSEEN and role in {Role.INCUMBENT, Role.CANDIDATE}:
        return BidAction.ASK
    goes = {
        BidPhase.QUEUED: GOES | {Role.OUTDATED, Role.UNHEALTHY},
        BidPhase.GRANTED: GOES | {Role.OUTDATED},
        BidPhase.READY: GOES,  # only what is meant to go is withdrawn while it works
        BidPhase.UNHEALTHY: GOES,
    }.get(stage, set(Role))
    return BidAction.WITHDRAW if role in goes else BidAction.WAIT


def test_the_action_for_a_bid_in_each_role_and_phase() -> None:
    nothing = {BidAction.WAIT, BidAction.LEAVE}
    for role, stage in product(Role, BidPhase):
        found, expected = BIDS[role][stage], moved(role, stage)
        assert found is expected or {found, expected} <= nothing, (role, stage)


def test_the_action_for_a_gang_in_each_state() -> None:
    over = {GangState.SUCCEEDED, GangState.FAILED, GangState.INTERRUPTED}
    for shape, goal in product(GangState, Goal):
        action, run, gone = GANG[shape][goal], goal is Goal.RUN, goal is Goal.GONE
        assert (action is GangAction.PREPARE) == (shape is GangState.BARE and not gone)
        starts = {GangState.PREPARED, GangState.FAILED, GangState.INTERRUPTED}
        assert (action is GangAction.LAUNCH) == (run and shape in starts)
        ends = (
            {GangState.DOOMED, GangState.STALLED}
            if run
            else {GangState.DOOMED, GangState.STALLED, GangState.RUNNING}
        )
        assert (action is GangAction.STOP) == (shape in ends)
        brings = over if gone else ({GangState.SUCCEEDED} if run else set())
        assert (action is GangAction.COLLECT) == (shape in brings)


@dataclass(frozen=True)
class State:
    """One point of the space."""

    goal: Goal
    stage: str
    hosts: str  #: none, far, reached
    past: str  #: of the attempt: none, running, failed, succeeded, stopped
    prepared: bool
    withdrawn: bool
    doomed: bool
    fits: bool  #: the job still asks for this
    code: bool  #: and for this code


@cache
def states() -> tuple[State, ...]:
    return tuple(every_state())


def every_state() -> Iterator[State]:
    stages = [
        "calling",
        "hidden",
        "ready",
        "sick",
        "lost",
        "ending",
        "leaving",
        "unknown",
        "making",
    ]
    for row in product(
        Goal,
        stages,
        ["none", "far", "reached"],
        ["none", "running", "failed", "succeeded", "stopped"],
        *([[False, True]] * 5),
    ):
        state = State(*row)  # type: ignore[arg-type]
        if state.past != "none" and not state.prepared:
            continue
        yield state


WORDS = {
    "ready": NodeState.READY, "sick": NodeState.UNHEALTHY, "lost": NodeState.LOST,
    "leaving": NodeState.LEAVING, "unknown": NodeState.UNKNOWN, "making": NodeState.MAKING,
    "calling": NodeState.READY, "ending": NodeState.READY,
}  # fmt: skip
VERDICTS = {
    "failed": Verdict.FAILURE, "succeeded": Verdict.SUCCESS, "stopped": Verdict.STOPPED,
}  # fmt: skip


def slot_history_of(state: State) -> SlotHistory:
    bid = planner_scenes.bid(
        asked_at=NOW - 5000,
        sent_at=NOW - 5000,
        answered_at=NOW - 4990,
        granted_at=NOW - 3100,
        ready_at=None if state.stage == "making" else NOW - 3000,
        notice_at=NOW - 5 if state.doomed else None,
        withdrawn_at=NOW - 1000 if state.withdrawn else None,
        withdrawals=int(state.withdrawn),
        prepared="c" if state.prepared else "",
        prepared_on=("i b0", "i b1") if state.prepared else (),
        prepared_at=NOW - 2900,
        collected=True,
    )
    attempt = None
    if state.past != "none":
        live = state.past == "running"
        attempt = AttemptRecord(
            id="gpt-0-a1-me",
            number=1,
            bid=NAME,
            code_digest="c",
            launched_at=NOW - 300,
            started_at=NOW - 299,
            boots=("b0", "b1"),
            ended_at=None if live else NOW - 60,
            verdict=VERDICTS.get(state.past),
        )
    return SlotHistory(
        generation=1,
        bids={NAME: bid},
        attempt=attempt,
        attempts=int(attempt is not None),
        first_launch_at=NOW - 300 if attempt else None,
    )


def observed_of(state: State) -> ObservedState:
    request = {"ending": RequestState.ENDING}.get(state.stage, RequestState.ACTIVE)
    sights = {}
    if state.stage != "hidden":
        nodes = (node(WORDS[state.stage], state="S"),)
        sights[NAME] = BidObservation(bid=NAME, zone="a", request=request, nodes=nodes, state="S")
    work = HostRun(
        attempt="gpt-0-a1-me",
        word=RunState.RUNNING,
        started=NOW - 299,
        logged_at=NOW - 1,
        drained=True,
    )
    hosts = tuple(
        planner_scenes.host(
            worker,
            reached=state.hosts == "reached",
            heard_at=NOW - 1,
            works=(work,) if state.past == "running" else (),
        )
        for worker in range(2)
    )
    return ObservedState(
        observations=sights,
        zones=frozenset() if state.stage == "hidden" else frozenset("abc"),
        surveyed_at=NOW - 1,
        hosts={} if state.hosts == "none" else {NAME: hosts},
        calling=frozenset([NAME]) if state.stage == "calling" else frozenset(),
    )


def slot_of(state: State) -> Slot:
    return slot(
        goal=state.goal,
        node_digest="n" if state.fits else "other",
        code_digest="c" if state.code else "other",
    )


@cache
def planned(state: State) -> EnginePlan:
    return plan_with(state)


def plan_with(state: State, **changes: object) -> EnginePlan:
    desired = DesiredSlots(slots={"gpt-0": slot_of(state)}, owner="me")
    observed = replace(observed_of(state), **changes)  # type: ignore[arg-type]
    return plan(desired, observed, History(slots={"gpt-0": slot_history_of(state)}), NOW)


def ends(state: State) -> bool:
    """The attempt can be declared over in this plan."""
    dead = state.stage in {"lost", "ending", "leaving"} and not state.withdrawn
    if state.past != "running":
        return state.past != "none"
    return dead and state.hosts != "reached"


def wants(state: State) -> bool:
    """The slot wants a node."""
    if state.goal is Goal.RUN and state.past == "succeeded":
        return False
    return state.goal is not Goal.GONE


def dies(state: State) -> bool:
    return state.doomed or state.stage in {"lost", "ending", "leaving"}


def test_withdraw_if_and_only_if() -> None:
    many = 0
    for state in states():
        many += 1
        may = state.stage in {"ready", "sick", "lost", "making"}
        if state.stage == "unknown":
            may = state.withdrawn or not wants(state)
        over = state.past == "none" or ends(state)
        old = wants(state) and not state.fits and state.stage == "making"
        dead = dies(state)
        expected = may and over and (state.withdrawn or not wants(state) or dead or old)
        found = actions(planned(state), Withdraw)
        assert bool(found) == expected, state
        assert len(found) <= 1
    assert many > 5000


def test_ask_if_and_only_if_nothing_fills_the_slot() -> None:
    for state in states():
        fills = not state.withdrawn and not dies(state) and state.fits
        found = actions(planned(state), Ask)
        assert len(found) == (3 if wants(state) and not fills else 0), state
        zones = [ask.offer.zone for ask in found if isinstance(ask, Ask)]
        assert zones == ["a", "b", "c"][: len(zones)]
        names = [ask.bid for ask in found if isinstance(ask, Ask)]
        assert names == ["gpt-0-g2-me", "gpt-0-g3-me", "gpt-0-g4-me"][: len(names)]


def boots_whole(state: State) -> bool:
    """All hosts of a node that is not READY yet are reached: they may be set up already."""
    return state.stage == "making" and state.hosts == "reached"


def has_fallen_silent(state: State) -> bool:
    """The hosts of a READY node answered a second ago."""
    return state.stage == "ready" and state.hosts == "far"


def works_on(state: State) -> bool:
    """A gang may be set up and started there."""
    seen = state.stage in {"ready", "hidden"}
    return seen and state.hosts == "reached" and not (state.withdrawn or state.doomed)


def test_prepare_if_and_only_if() -> None:
    for state in states():
        ahead = boots_whole(state) and state.fits and not (state.withdrawn or state.doomed)
        expected = (
            (works_on(state) or ahead)
            and wants(state)
            and state.past != "running"
            and not (state.prepared and state.code)
        )
        assert bool(actions(planned(state), Prepare)) == expected, state


def test_launch_if_and_only_if() -> None:
    for state in states():
        expected = (
            works_on(state)
            and wants(state)
            and state.goal is Goal.RUN
            and state.prepared
            and state.code
            and state.past in {"none", "failed", "stopped"}
        )
        found = actions(planned(state), Launch)
        assert len(found) == expected, state
        for launch in found:
            assert isinstance(launch, Launch)
            assert launch.number == 1 + (state.past != "none")
            assert launch.resume == (state.past != "none")
            assert launch.boots == ("b0", "b1")


def test_stop_if_and_only_if() -> None:
    for state in states():
        goes = dies(state) or state.withdrawn or state.goal is not Goal.RUN or not state.code
        expected = state.past == "running" and not ends(state) and goes
        found = actions(planned(state), Stop)
        assert len(found) == expected, state
        for stop in found:
            assert isinstance(stop, Stop)
            gone = state.doomed or (dies(state) and not state.withdrawn)
            assert stop.grace_s == (25 if gone else 30), state
            assert not stop.stacks


def test_nothing_is_repeated_while_it_is_under_way() -> None:
    for state in states():
        first = planned(state)
        calls = [step.action.bid for step in first.steps if isinstance(step.action, Ask | Withdraw)]
        again = plan_with(state, calling=frozenset([*calls, NAME]), working=frozenset(["gpt-0"]))
        assert not actions(again, Withdraw), state
        for kind in (Prepare, Launch, Collect):
            assert not actions(again, kind), state


@pytest.mark.parametrize("goal", list(Goal))
def test_every_step_has_a_reason_and_every_slot_a_message(goal: Goal) -> None:
    for state in states():
        if state.goal is not goal:
            continue
        found = planned(state)
        assert all(step.why for step in found.steps), state
        assert found.states["gpt-0"], state
        assert found.wake_at >= NOW
        quick = boots_whole(state) or has_fallen_silent(state)
        assert found.survey_s in ({1.0} if quick else set()) | {3.0, 5.0, 60.0}
        told = [step.action.event for step in found.steps if isinstance(step.action, RecordEvent)]
        assert all(event.job == "gpt" and event.slot == "gpt-0" for event in told)


def test_at_rest_if_and_only_if_nothing_is_held_or_wanted() -> None:
    for state in states():
        assert not planned(state).rest, state
    for goal, done, gave_up in product(Goal, [None, NOW], [None, NOW]):
        slot_history = SlotHistory(done_at=done, gave_up_at=gave_up)
        desired = DesiredSlots(slots={"gpt-0": slot(goal=goal)}, owner="me")
        found = plan(desired, ObservedState(), History(slots={"gpt-0": slot_history}), NOW)
        over = goal is Goal.GONE or gave_up is not None or (goal is Goal.RUN and done is not None)
        assert found.rest == over
        assert bool(actions(found, Ask)) == (not over)
