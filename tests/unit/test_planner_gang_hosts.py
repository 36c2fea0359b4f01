"""A gang that starts, ends or is stopped, for all that its hosts may report meanwhile."""

from dataclasses import replace
from itertools import product
from typing import Any

from tests.unit.planner_scenes import NAME, NOW, bid, host, seen, sight
from tests.unit.toy_cloud import offer, slot
from tpuherd.model.observed import (
    HostRun,
    HostStatus,
    NodeState,
    ObservedState,
    Outlook,
    RunState,
)
from tpuherd.model.slot_history import AttemptRecord, BidRecord
from tpuherd.model.slots_and_plan import Limits
from tpuherd.planner.gang_progress import (
    HOLD_S,
    LAUNCH_S,
    LAUNCHES_MAX,
    NOTICE_S,
    STOP_S,
    Pending,
    build_gang,
    pending_state,
)

ATTEMPT = AttemptRecord(
    id="gpt-0-a1-me", number=1, bid=NAME, code_digest="c", launched_at=NOW - LAUNCH_S,
    boots=("b0", "b1", "b2"),
)  # fmt: skip
RUNS = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING, step=1)
SAYS: dict[str, dict[str, Any]] = {
    "runs": {"works": (RUNS,)},
    "absent": {"works": ()},
    "far": {"works": (), "reached": False},
    "failed": {"works": (replace(RUNS, word=RunState.ENDED, exit=1, ended=NOW - 99),)},
    "well": {"works": (replace(RUNS, word=RunState.ENDED, exit=0, ended=NOW - 99),)},
}


def observed(hosts: tuple[HostStatus, ...], **changes: Any) -> ObservedState:
    return seen(observations={NAME: sight(NodeState.READY)}, hosts={NAME: hosts}, **changes)


def waits(
    says: tuple[str, ...],
    attempt: AttemptRecord = ATTEMPT,
    mine: BidRecord | None = None,
    leaving_since: float | None = None,
    **changes: Any,
) -> Pending | None:
    """What is waited for when the hosts say this, and since then the last one shuts down."""
    hosts = tuple(host(worker, **SAYS[one]) for worker, one in enumerate(says))
    if leaving_since is not None:
        left = replace(hosts[-1], outlook=Outlook.RETURNS, notice_at=leaving_since)
        hosts = (*hosts[:-1], left)
    known = replace(mine or bid(), offer=offer("a", hosts=max(2, len(says))))
    wanted_slot = slot(limits=Limits(notice_grace_s=25))
    return pending_state(build_gang(wanted_slot, attempt, known, observed(hosts, **changes)), NOW)


def test_a_launch_for_all_states_of_three_hosts() -> None:
    for says in product(SAYS, repeat=3):
        missing, over = "absent" in says, {"failed", "well"} & set(says)
        found = waits(says)
        assert waits(says, working=frozenset(["gpt-0"])) == Pending(held=True)
        early = waits(says, replace(ATTEMPT, launched_at=NOW - LAUNCH_S + 1))
        last = waits(says, replace(ATTEMPT, launches=LAUNCHES_MAX))
        if missing and over:
            assert bool(found and found.broken) == ("runs" in says), says
            assert (found is None) == ("runs" not in says), says
        elif missing:
            assert found == Pending(absent=f"{NAME}/w{says.index('absent')}"), says
            assert early == Pending(wake_at=NOW + 1, held=True), says
            assert last is not None and "did not start it" in last.broken, says
        elif found is not None:
            assert found.begun == ("far" not in says), says
        assert not (set(says) <= {"runs"}) or found == Pending(begun=True)


def test_a_launch_on_too_few_hosts_has_not_started() -> None:
    hosts = (host(0, **SAYS["runs"]),)
    gang = build_gang(slot(), ATTEMPT, bid(), observed(hosts))
    found = pending_state(gang, NOW)
    assert found is not None and not found.begun


def test_the_survey_time_counts_where_the_zone_has_answered() -> None:
    for zones, surveyed_at in ((frozenset("ab"), NOW - 7), (frozenset("b"), 0.0)):
        gang = build_gang(slot(), ATTEMPT, bid(), observed((), zones=zones, surveyed_at=NOW - 7))
        assert gang.surveyed_at == surveyed_at


def test_a_stop_is_unheard_if_a_host_heard_since_still_runs() -> None:
    for heard, word, working in product(
        (NOTICE_S, NOTICE_S + 1), (RunState.RUNNING, RunState.SETUP, RunState.ENDING), (0, 1)
    ):
        attempt = replace(ATTEMPT, started_at=1.0, stopping_at=NOW - 20, stopping_s=30.0)
        at = NOW - 20 + heard
        hosts = (
            host(0, heard_at=at, works=(replace(RUNS, word=word),)),
            host(1, works=(replace(RUNS, word=RunState.ENDING),)),
        )
        busy = frozenset(["gpt-0"] if working else [])
        found = pending_state(
            build_gang(slot(), attempt, bid(), observed(hosts, working=busy)), NOW
        )
        expected = heard > NOTICE_S and word is not RunState.ENDING and not working
        assert found is not None and found.deaf == expected


def test_a_stop_is_over_when_all_hosts_ended_or_are_gone_or_time_is_up() -> None:
    space = product(SAYS, SAYS, ("", "lost", "noticed", "leaving"), (True, False))
    for first, second, node, late in space:
        margin = NOTICE_S if node else STOP_S
        since = NOW - 30.0 - margin + (0.0 if late else 1.0)
        attempt = replace(ATTEMPT, started_at=1.0, stopping_at=since, stopping_s=30.0)
        mine = bid(
            lost_at=1.0 if node == "lost" else None, notice_at=1.0 if node == "noticed" else None
        )
        says = (first, second)
        # A host that started it and has no record any longer is over, too.
        ended = {"failed", "well", "absent"}
        done = set(says) <= ended or late or (node == "lost" and "runs" not in says)
        found = waits(says, attempt, mine, NOW - 9.0 if node == "leaving" else None)
        assert (found is None) == done, (says, node, late)
        if found is not None:
            assert (found.wake_at, found.held) == (NOW + 1.0, True)


def test_a_stop_is_over_when_hosts_heard_since_have_not_begun_it() -> None:
    """Of a launch that was overtaken: one host may have begun and ended it."""
    attempt = replace(ATTEMPT, stopping_at=NOW - 20, stopping_s=30.0)
    for heard, reached, working, ended in product((NOTICE_S, NOTICE_S + 1), *[(False, True)] * 3):
        works = (replace(RUNS, word=RunState.ENDED, exit=0),) if ended else ()
        hosts = (host(0, works=works), host(1, heard_at=NOW - 20 + heard, reached=reached))
        seen_now = observed(hosts, working=frozenset(["gpt-0"] if working else []))
        found = pending_state(build_gang(slot(), attempt, bid(), seen_now), NOW)
        assert (found is None) == (heard > NOTICE_S and reached and not working)


def test_a_leaving_node_is_waited_for_until_all_hosts_ended_or_time_is_up() -> None:
    for first, second, late, host_only in product(SAYS, SAYS, (True, False), (True, False)):
        noticed = NOW - 25.0 - NOTICE_S + (0.0 if late else 1.0)
        says = (first, second)
        attempt = replace(ATTEMPT, started_at=1.0)
        mine = bid(notice_at=None if host_only else noticed)
        found = waits(says, attempt, mine, noticed if host_only else None)
        ended = {"failed", "well", "absent"}
        done = set(says) <= ended or (late and "runs" not in says)
        assert (found is None) == done, (says, late)
        if found is not None:
            assert bool(found.broken) == ("runs" in says)
            assert found.held and found.wake_at == NOW + (0.0 if late else 1.0)


def test_the_other_hosts_are_waited_for_after_the_first_one_ended() -> None:
    """And after the last of a whole gang, unless the cloud was asked since."""
    attempt = replace(ATTEMPT, started_at=1.0)
    for ago, other in product((HOLD_S - 1, HOLD_S), (0.0, 5.0)):
        ends = (NOW - ago, NOW - ago + other)
        works = [replace(RUNS, word=RunState.ENDED, exit=1, ended=at) for at in ends]
        whole = tuple(host(worker, works=(work,)) for worker, work in enumerate(works))
        gang = build_gang(slot(), attempt, bid(), observed(whole, surveyed_at=1.0))
        last = max(ends) + HOLD_S
        assert pending_state(gang, NOW) == (
            None if last <= NOW else Pending(wake_at=last, held=True)
        )
        fresh = build_gang(slot(), attempt, bid(), observed(whole, surveyed_at=max(ends) + 1))
        same = build_gang(slot(), attempt, bid(), observed(whole, surveyed_at=max(ends)))
        assert pending_state(fresh, NOW) is None
        assert pending_state(same, NOW) == pending_state(gang, NOW)
        three = (*whole, host(2, **SAYS["runs"]))
        some = build_gang(slot(), attempt, bid(offer=offer("a", hosts=3)), observed(three))
        found, first = pending_state(some, NOW), min(ends) + HOLD_S
        assert found is not None
        assert bool(found.broken) == (first <= NOW)
        assert found.broken or found == Pending(wake_at=first, held=True)


def test_on_a_lost_node_reachable_hosts_are_stopped_before_it_is_over() -> None:
    attempt = replace(ATTEMPT, started_at=1.0)
    for says in product(SAYS, repeat=2):
        found = waits(says, attempt, bid(lost_at=1.0, lost_how="preempted"))
        assert found == (Pending(broken=f"{NAME} was preempted") if "runs" in says else None)


def test_a_gang_is_over_at_once_if_a_host_reports_completion() -> None:
    attempt = replace(ATTEMPT, started_at=1.0)
    ended = replace(RUNS, word=RunState.ENDED, exit=0, ended=NOW - 1)
    for first, second in product((True, False), repeat=2):
        hosts = tuple(
            host(worker, works=(replace(ended, complete=one),))
            for worker, one in enumerate((first, second))
        )
        gang = build_gang(slot(), attempt, bid(), observed(hosts, surveyed_at=1.0))
        assert (pending_state(gang, NOW) is None) == (first or second)


def test_a_host_that_lost_the_attempt_is_not_waited_for() -> None:
    attempt = replace(ATTEMPT, started_at=1.0)
    assert waits(("absent", "absent"), attempt, surveyed_at=1.0) is None
    found = waits(("absent", "runs"), attempt, surveyed_at=1.0)
    assert found == Pending(broken=f"{NAME}/w0 has no record of it any longer")
