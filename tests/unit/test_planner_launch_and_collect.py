"""Launching, stopping, collecting and keeping, at exact times and with unreachable hosts."""

from dataclasses import replace
from itertools import product
from typing import Any

from tests.unit.planner_scenes import (  # fmt: skip
    ATTEMPT,
    NAME,
    NOW,
    actions,
    again,
    bid,
    case,
    host,
    running,
    sight,
    stood,
    with_works,
)
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.model.observed import HostRun, NodeState, RunState
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import (
    Collect,
    Goal,
    Launch,
    Limits,
    Prepare,
    Stop,
)
from tpuherd.planner import gang_actions, slot_messages
from tpuherd.planner.bid_status import NodeNeed
from tpuherd.planner.policy import BidPhase, GangState, Role
from tpuherd.planner.retry_limits import CHIPS_PAUSE_S


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


def test_a_withdrawn_bid_keeps_the_seat_where_it_ran() -> None:
    here, other = (
        stood(role=Role.UNWANTED, bid=bid(name=name, ready_at=2.0)) for name in ("x", "y")
    )
    for order in ((here, other), (other, here)):
        found = gang_actions.gang_bid(case(*order, need=NodeNeed.NONE, home=here))
        assert found is here
    found = gang_actions.gang_bid(case(here, need=NodeNeed.NONE))
    assert found is here
    assert gang_actions.gang_bid(case(here, need=NodeNeed.SEEK)) is None
    assert gang_actions.gang_bid(case(stood(role=Role.OUTDATED), need=NodeNeed.NONE)) is None
    assert (
        gang_actions.gang_bid(case(stood(role=Role.UNWANTED, bid=bid()), need=NodeNeed.NONE))
        is None
    )


def test_silent_hosts_are_told_apart_from_hosts_not_yet_reached() -> None:
    far = (host(0, reached=False), host(1, reached=False))
    never = tuple(replace(one, heard_at=0.0) for one in far)
    sick = bid(granted_at=1.0, ready_at=2.0, unhealthy_at=3.0)
    for one, shape in [
        (stood(), GangState.BARE),
        (stood(stage=BidPhase.HIDDEN), GangState.BARE),
        (stood(hosts=far, whole=False), GangState.SILENT),
        (stood(hosts=never, whole=False), GangState.BOOTING),
        (stood(hosts=never, whole=False, stage=BidPhase.UNHEALTHY), GangState.SILENT),
        (stood(hosts=never, whole=False, stage=BidPhase.HIDDEN), GangState.SILENT),
        (stood(stage=BidPhase.UNHEALTHY), GangState.SILENT),
        (stood(bid=sick), GangState.SILENT),
        (stood(bid=bid(granted_at=1.0)), GangState.BOOTING),
        (stood(stage=BidPhase.UNKNOWN), GangState.UNKNOWN),
        (stood(stage=BidPhase.CALLING), GangState.UNKNOWN),
    ]:
        assert gang_actions.gang_state(case(one), one) is shape, one
    assert gang_actions.gang_state(case(), None) is GangState.NOWHERE


def test_a_host_without_reports_is_quiet_since_the_whole_gang_knew_the_attempt() -> None:
    toy = running()
    attempt = toy.slot_history().attempt
    assert attempt
    for ago, stalls in ((2700.0, True), (2699.0, False)):
        young = replace(attempt, started_at=toy.now - ago, launched_at=toy.now - 9000)
        toy.history = replace(
            toy.history, slots={"gpt-0": replace(toy.slot_history(), attempt=young)}
        )
        mute = {"started": None, "logged_at": None, "stepped_at": None}
        assert bool(actions(with_works(toy, **mute), Stop)) == stalls


def test_an_unheard_stop_is_sent_again() -> None:
    toy = running()
    toy.losing = {Stop}
    toy.change_job(goal=Goal.IDLE)
    toy.tick()
    (first,) = actions(toy.last, Stop)
    toy.tick(4.0)
    assert not actions(toy.last, Stop)
    toy.tick(2.0)
    assert actions(toy.last, Stop) == [first]
    assert toy.last.steps[-1].why == "the job should not run now"
    assert not actions(again(toy, working=frozenset(["gpt-0"])), Stop)


def test_an_unhealthy_successor_is_not_prepared() -> None:
    toy = running()
    old = toy.home.ask.bid
    toy.losing = {Prepare}
    toy.change_job(offers=(offer("a", type="v5"),))
    toy.run(until=lambda toy: any(one.ready_at for one in toy.slot_history().bids.values()
                                  if one.name != old))  # fmt: skip
    toy.tick()
    new = next(one for name, one in toy.toy_nodes.items() if name != old)
    assert [one.bid for one in actions(again(toy), Prepare)] == [new.ask.bid]
    for word in (NodeState.UNHEALTHY, NodeState.MAKING, NodeState.UNKNOWN):
        new.node = word
        assert not actions(again(toy, hosts=toy.hosts()), Prepare), word
    new.node = NodeState.READY
    new.cut = True
    assert not actions(again(toy), Prepare)


def test_an_attempt_on_an_unreachable_node_may_still_run() -> None:
    def haunted(**changes: Any) -> bool:
        here, attempt = stood(**changes), replace(ATTEMPT, ended_at=NOW - 9, sure=False)
        new = stood(bid=bid(name="gpt-0-g2-me", generation=2))
        one = case(here, new, home=here)
        one.slot_history = replace(one.slot_history, attempt=attempt)
        return gang_actions.may_still_run_elsewhere(one, new)

    runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
    over = replace(runs, word=RunState.ENDED)
    assert haunted(hosts=(), whole=False)
    assert haunted(hosts=(host(0, works=(over,)),), whole=False)
    assert haunted(hosts=(host(0, works=(runs,)),))
    assert not haunted(hosts=(host(0, works=(over,)),))
    going = {BidPhase.LOST, BidPhase.ENDING, BidPhase.LEAVING, BidPhase.VANISHED}
    pairs = (*product(NodeState), *product(NodeState, NodeState))
    for stage, words in product(BidPhase, ((), *pairs)):
        gone = stage in going and set(words) <= {NodeState.LOST}
        found = haunted(hosts=(), whole=False, stage=stage, observation=sight(*words))
        assert found != gone, (stage, words)
    assert not haunted(hosts=(), whole=False, stage=BidPhase.VANISHED, observation=None)


def test_why_says_what_the_next_attempt_waits_for() -> None:
    for times, asked in ((0, ""), (2, " (asked twice, the last time 7 min ago)")):
        old = bid(withdrawals=times, withdrawn_at=NOW - 420 if times else None)
        here = stood(bid=old, hosts=(), whole=False, stage=BidPhase.LEAVING)
        new = stood(bid=bid(name="gpt-0-g2-me", generation=2, granted_at=1.0, ready_at=2.0))
        one = case(here, new, home=here, incumbent=new)
        attempt = replace(ATTEMPT, ended_at=1.0, sure=False)
        one.slot_history = replace(one.slot_history, attempt=attempt)
        said = slot_messages.granted_node_message(one, new, GangState.PREPARED)
        assert said.endswith(
            f" is prepared; waiting until the cloud says that {NAME}, on which attempt 1 may still"
            f" run, is stopped or gone{asked}"
        )


def test_collected_outputs_are_not_collected_again() -> None:
    toy = Toy(slot(outputs=True, limits=Limits(done_keep_s=300)))
    toy.run()
    assert len(toy.kinds("slot.collected")) == 1
    toy = running(outputs=True)
    toy.losing = {Collect}
    toy.home.work[toy.launches[0]][0].ended = toy.now
    toy.lasts = 0.0
    toy.run(until=lambda toy: bool(actions(toy.last, Collect)))
    hosts = {
        name: (words[0], replace(words[1], reached=False)) for name, words in toy.hosts().items()
    }
    assert actions(again(toy), Collect)
    assert not actions(again(toy, hosts=hosts), Collect)


def test_a_failed_setup_is_not_retried_at_once() -> None:
    for missing, failed in ((True, None), (False, None), (False, 1)):
        toy = Toy(slot())
        hosts = [{"host": "w0", "exit": failed, "tail": list[str]()}]
        facts: dict[str, Any] = {"message": "no", "hosts": hosts, "missing": missing}
        toy.prepare = lambda step, action, toy=toy, facts=facts: toy.tell(  # type: ignore[method-assign, misc]
            "slot.setup_failed", step, bid=action.bid, **facts
        )
        toy.run(until=lambda toy: bool(toy.kinds("slot.setup_failed")))
        soon = replace(toy.observed())
        assert not actions(again(toy, surveyed_at=soon.surveyed_at), Prepare)
        assert again(toy).wake_at <= toy.now + 10
        toy.run(until=lambda toy: len(toy.kinds("slot.setup_failed")) == 2)
        first, second = (event.at for event in toy.kinds("slot.setup_failed"))
        assert second - first == 10
