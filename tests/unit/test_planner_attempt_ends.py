"""Single ends of an attempt: their sentences, times and verdicts."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from tests.unit.planner_scenes import (  # fmt: skip
    ATTEMPT,
    NAME,
    NOW,
    actions,
    bid,
    host,
    running,
    seen,
    sight,
)
from tests.unit.toy_cloud import offer, slot
from tpuherd.model.observed import EndCode, HostRun, NodeState, Outlook, RunState
from tpuherd.model.slot_history import AttemptRecord, History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import (
    DesiredSlots,
    Goal,
    RecordEvent,
    Stop,
)
from tpuherd.planner import verdict
from tpuherd.planner.gang_progress import Pending, build_gang
from tpuherd.planner.plan import attempt_number, plan
from tpuherd.planner.verdict import AttemptEnd, judge_attempt


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
        assert (found.verdict, found.why) == (kind, "w")


def test_an_attempt_that_never_started_says_nothing_about_chips() -> None:
    why = "no room on the disk"
    found = concluded(RunState.ENDED, exit=1, why=why, code=EndCode.UNBORN)
    assert found.verdict is Verdict.NODE_FAULT
    assert found.why.endswith(f": {why}")


@pytest.mark.parametrize(
    "ending",
    [{"signal": 9, "code": EndCode.OUTSIDE}, {"exit": 137, "code": EndCode.OUTSIDE}, {"exit": 75}],
)
def test_an_end_from_outside_is_a_failure_that_says_so(ending: dict[str, Any]) -> None:
    how = "was killed by signal 9" if "signal" in ending else f"exited with {ending['exit']}"
    said = f"{NAME}/w0 {how}: it was ended by a signal that herd did not send; `herd stop gpt`"
    said = f"{said} cancels for good"
    found = concluded(RunState.ENDED, **ending, tail=("step 1",))
    assert (found.verdict, found.why) == (Verdict.FAILURE, f"{said}: step 1")
    assert found.finding == ("" if ending == {"exit": 75} else "killed")
    found = concluded(RunState.ENDED, **ending, why="ann ran `pkill -9 python3` there")
    assert (found.why, found.finding) == (f"{said}: ann ran `pkill -9 python3` there", "")


@pytest.mark.parametrize("outlook", [Outlook.OFF, Outlook.RETURNS])
def test_an_end_with_its_host_is_no_failure(outlook: Outlook) -> None:
    for ending in ({"signal": 15, "code": EndCode.OUTSIDE}, {"exit": 0}, {"exit": 1}):
        work = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, ended=NOW - 30, **ending)
        leaves = host(0, works=(work,), outlook=outlook, notice_at=NOW - 31)
        found = verdict_of(work, hosts={NAME: (leaves, host(1, works=(work,)))})
        assert (found.verdict, found.why) == (Verdict.NODE_FAULT, f"{NAME}/w0 was shut down")
        assert found.shut_down


def test_a_reboot_is_in_order_if_what_ran_was_told_to_end() -> None:
    for termed in (True, False):
        work = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, ended=NOW - 30, termed=termed)
        hosts = (host(0, boot="b2", works=(work,)), host(1, works=(work,)))
        found = verdict_of(work, hosts={NAME: hosts})
        assert (found.why, found.shut_down) == (f"{NAME}/w0 was rebooted", termed)


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


def verdict_of(work: HostRun, attempt: AttemptRecord = ATTEMPT, **changes: Any) -> Any:
    """What two hosts that say the same come to."""
    hosts = tuple(host(one, works=(work,)) for one in range(2))
    observed = replace(seen(hosts={NAME: hosts}), **changes)
    slot_history = SlotHistory(attempt=replace(attempt, started_at=NOW - 40, boots=("b0", "b1")))
    return judge_attempt(slot(), slot_history, bid(granted_at=1.0, ready_at=2.0), observed, NOW)


def test_a_survey_counts_if_it_began_after_the_end() -> None:
    well = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 5)
    assert isinstance(verdict_of(well, surveyed_at=NOW - 5), Pending)
    assert verdict_of(well, surveyed_at=NOW - 4.9).verdict is Verdict.SUCCESS


def test_a_success_before_our_stop_arrived_is_a_success() -> None:
    stopping = replace(ATTEMPT, stopping_at=NOW - 6, stopping_why="changed", stopping_s=30.0)
    well = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 5)
    assert verdict_of(well, stopping).verdict is Verdict.SUCCESS
    assert verdict_of(replace(well, termed=True), stopping).verdict is Verdict.STOPPED
    assert verdict_of(replace(well, exit=75), stopping).verdict is Verdict.STOPPED
    one = (host(0, works=(well,)), host(1, works=(replace(well, termed=True),)))
    assert verdict_of(well, stopping, hosts={NAME: one}).verdict is Verdict.STOPPED


def test_after_a_notice_the_cloud_is_surveyed_soon() -> None:
    runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
    hosts = tuple(host(one, works=(runs,)) for one in range(2))
    mine = bid(granted_at=1.0, ready_at=2.0, notice_at=NOW - 1)
    slot_history = SlotHistory(attempt=replace(ATTEMPT, started_at=NOW - 40, boots=("b0", "b1")))
    found = judge_attempt(slot(), slot_history, mine, seen(hosts={NAME: hosts}), NOW)
    assert isinstance(found, Pending) and found.held and found.wake_at == NOW - 1 + 25 + 5


def test_only_reports_of_this_attempt_count_for_it() -> None:
    well = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 5)
    other = HostRun(attempt="gpt-0-a0-me", word=RunState.RUNNING)
    for works in ((other, well), (well, other)):
        hosts = tuple(host(one, works=works) for one in range(2))
        assert verdict_of(well, hosts={NAME: hosts}).verdict is Verdict.SUCCESS
    young = replace(well, word=RunState.RUNNING, exit=None, ended=None)
    ended = replace(other, word=RunState.ENDED)
    hosts = tuple(host(one, works=(ended, young)) for one in range(2))
    assert verdict_of(young, hosts={NAME: hosts}) == Pending()


@pytest.mark.parametrize("change", [{"code_digest": "d"}, {"goal": Goal.RUN, "code_digest": "e"}])
def test_a_run_that_ended_before_its_stop_arrived_is_done(change: dict[str, Any]) -> None:
    toy = running()
    toy.losing = {Stop}  # no host responds
    toy.change_job(**change)
    toy.tick()
    assert actions(toy.last, Stop)
    for process in toy.home.work[toy.launches[0]].values():
        process.ended, process.exit = toy.now, 0
    toy.run()
    assert len(toy.launches) == 1
    assert toy.slot_history().done_at is not None


def test_an_attempt_whose_bid_is_forgotten_is_lost() -> None:
    slot_history = SlotHistory(attempt=replace(ATTEMPT, started_at=NOW - 40), attempts=1)
    desired = DesiredSlots(slots={"gpt-0": slot()}, owner="me")
    found = plan(desired, seen(), History(slots={"gpt-0": slot_history}), NOW)
    (record, *asks) = (step.action for step in found.steps)
    assert isinstance(record, RecordEvent) and record.event.facts["verdict"] == "lost"
    assert len(asks) == 3


def test_an_attempt_on_a_lost_node_is_surely_over_once_the_cloud_calls_it_stopped_or_gone() -> None:
    lost = bid(granted_at=1.0, ready_at=2.0, lost_at=3.0, lost_how="preempted")
    history = SlotHistory(attempt=replace(ATTEMPT, started_at=NOW - 40), bids={NAME: lost})
    for word in (None, *NodeState):
        lists = {} if word is None else {NAME: sight(word)}
        hosts = {NAME: (host(0, reached=False), host(1, reached=False))}
        found = judge_attempt(slot(), history, lost, seen(observations=lists, hosts=hosts), NOW)
        assert isinstance(found, AttemptEnd)
        assert found.sure == (word in {None, NodeState.LOST}), word


def test_a_slice_whose_hosts_reported_the_end_need_not_be_gone() -> None:
    lost = bid(granted_at=1.0, ready_at=2.0, lost_at=3.0, lost_how="preempted", nodes=2)
    history = SlotHistory(attempt=replace(ATTEMPT, started_at=NOW - 40), bids={NAME: lost})
    over = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, ended=NOW - 9)
    shown = seen(observations={NAME: sight(NodeState.LEAVING)})  # the other slice is gone
    for second in (True, False):
        hosts = (host(0, works=(over,)), host(1, reached=False, works=(over,) * second))
        found = judge_attempt(slot(), history, lost, replace(shown, hosts={NAME: hosts}), NOW)
        assert isinstance(found, AttemptEnd) and found.sure == second


def test_a_success_on_a_lost_node_is_done_and_names_missing_outputs() -> None:
    lost = bid(granted_at=1.0, ready_at=2.0, lost_at=3.0, lost_how="preempted")
    for outputs, collected, bids, missing in [
        (True, False, [lost], True), (True, True, [replace(lost, collected=True)], False),
        (False, False, [lost], False), (True, False, [], True), (False, False, [], False),
    ]:  # fmt: skip
        attempt = replace(ATTEMPT, ended_at=NOW - 5, verdict=Verdict.SUCCESS)
        slot_history = SlotHistory(
            attempt=attempt, attempts=1, bids={one.name: one for one in bids}
        )
        desired = DesiredSlots(slots={"gpt-0": slot(outputs=outputs)}, owner="me")
        found = plan(desired, seen(), History(slots={"gpt-0": slot_history}), NOW)
        (done,) = (one for one in actions(found, RecordEvent) if one.event.kind == "slot.done")
        assert ("before its outputs" in done.event.facts["why"]) == missing, (outputs, collected)


def test_an_attempt_number_is_read_from_names_of_the_same_slot() -> None:
    names = {"gpt-0-a3-7kq": 3, "gpt-0-a12-me": 12, "gpt-0-ax-me": 0, "other-0-a9-me": 0,
             "gpt-0-a-me": 0, "gpt-00-a4-me": 0}  # fmt: skip
    assert {name: attempt_number(name, "gpt-0") for name in names} == names
