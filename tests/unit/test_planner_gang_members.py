"""What one host of a gang shows: reboots, ends, and logs still to come."""

from dataclasses import replace

from tests.unit.planner_scenes import (
    ATTEMPT,
    NAME,
    host,
    stood,
)
from tpuherd.model.observed import HostRun, RunState
from tpuherd.planner import bidding, gang_progress
from tpuherd.planner.gang_progress import describe_end


def test_a_reboot_is_detected_only_if_both_boots_are_known() -> None:
    for boot, boots, rebooted in [
        ("b0", ("b0", "b1"), False), ("b2", ("b0", "b1"), True), ("", ("b0", "b1"), False),
        ("b2", (), False), ("", (), False),
    ]:  # fmt: skip
        runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
        found = gang_progress.build_member(
            host(0, boot=boot, works=(runs,)), replace(ATTEMPT, boots=boots)
        )
        assert (found.lost, found.over) == (f"{NAME}/w0 was rebooted" * rebooted, rebooted)


def test_an_attempt_ended_by_the_dead_man_switch_did_not_end_by_itself() -> None:
    over = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=1, deadman=True)
    found = gang_progress.build_member(host(0, works=(over,)), ATTEMPT)
    assert found.lost == "no engine contacted its host for too long" and not found.has_failed
    for word in (RunState.RUNNING, RunState.ENDING):
        assert not gang_progress.build_member(
            host(0, works=(replace(over, word=word),)), ATTEMPT
        ).lost
    assert not gang_progress.build_member(
        host(0, works=(replace(over, deadman=False),)), ATTEMPT
    ).lost


def test_how_an_end_is_described() -> None:
    work = HostRun(attempt="x", word=RunState.ENDED, exit=3, signal=9, termed=True)
    assert describe_end(work) == "was stopped"
    assert describe_end(replace(work, termed=False)) == "was killed by signal 9"
    assert describe_end(replace(work, termed=False, signal=None)) == "exited with 3"
    assert describe_end(None) == "is gone"


def test_a_log_is_complete_when_all_reachable_hosts_have_sent_theirs() -> None:
    mine = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, drained=True)
    late, other = replace(mine, drained=False), replace(mine, attempt="x", drained=False)
    for first, second, reached, waits in [
        ((mine,), (mine,), True, False), ((mine,), (late,), True, True),
        ((late,), (mine,), True, True), ((mine,), (late,), False, False),
        ((mine,), (mine, other), True, False), ((mine,), (), True, False),
    ]:  # fmt: skip
        one = stood(hosts=(host(0, works=first), host(1, works=second, reached=reached)))
        assert bidding.has_undrained_log(one, ATTEMPT.id) == waits
