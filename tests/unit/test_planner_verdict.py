"""How a gang of two ends, for every combination of reports, node states and our own actions."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.unit import planner_scenes
from tests.unit.planner_scenes import ATTEMPT, NAME
from tests.unit.toy_cloud import slot
from tpuherd.diagnosis.first_failure import chips_failed, find_cause, has_own_cause
from tpuherd.model.observed import EndCode, HostRun, HostStatus, ObservedState, RunState
from tpuherd.model.slot_history import AttemptRecord, SlotHistory, Verdict
from tpuherd.planner.gang_progress import HOLD_S, LAUNCH_S, LAUNCHES_MAX, NOTICE_S, STOP_S, Pending
from tpuherd.planner.verdict import (
    CHIPS_MAX,
    AttemptEnd,
    attempt_last_sign,
    judge_attempt,
    run_last_sign,
)

NOW = 10_000.0
ID = "gpt-0-a1-me"
PLAIN = HostRun(attempt=ID, word=RunState.RUNNING, started=NOW - 500)
WORKS: dict[str, Any] = {
    "runs": PLAIN,
    "setup": replace(PLAIN, word=RunState.SETUP),
    "ending": replace(PLAIN, word=RunState.ENDING, termed=True),
    "well": replace(PLAIN, word=RunState.ENDED, ended=NOW - 5, exit=0),
    "failed": replace(PLAIN, word=RunState.ENDED, ended=NOW - 5, exit=3, tail=("KeyError: 'lr'",)),
    "killed": replace(PLAIN, word=RunState.ENDED, ended=NOW - 4, signal=9),
    "termed": replace(PLAIN, word=RunState.ENDED, ended=NOW - 5, exit=0, termed=True),
    "complete": replace(
        PLAIN, word=RunState.ENDED, ended=NOW - 5, exit=0, termed=True, complete=True
    ),
    "lost": replace(PLAIN, word=RunState.LOST, why="all was killed"),
    "absent": None,
}
OVER = {"well", "failed", "killed", "termed", "complete", "lost", "rebooted"}


@dataclass(frozen=True)
class Scene:
    """What is known when the verdict is wanted."""

    first: str = "well"
    second: str = "well"
    node: str = "ready"  #: ready, lost, noticed
    stopping: str = ""  #: "", stop, stall
    late: bool = True  #: all that is waited for is past
    cloud: bool = True  #: a survey came after the end
    started: bool = True


def host(number: int, state: str) -> HostStatus:
    work = WORKS["runs" if state in {"silent", "rebooted"} else state]
    return planner_scenes.host(
        number,
        reached=state != "silent",
        heard_at=NOW - 1,
        boot=f"b{number}" + ("x" if state == "rebooted" else ""),
        works=() if work is None else (work,),
    )


def concluded(
    scene: Scene, hosts: tuple[HostStatus, ...] = (), **changes: Any
) -> AttemptEnd | Pending:
    stopped_at = NOW - (200 if scene.late else 1)
    attempt = AttemptRecord(
        id=ID,
        number=1,
        bid=NAME,
        code_digest="c",
        launched_at=NOW - 600,
        boots=("b0", "b1"),
        started_at=NOW - 599 if scene.started else None,
        stopping_at=stopped_at if scene.stopping else None,
        stopping_why="we said so" if scene.stopping else "",
        stopping_s=30,
        stalled=scene.stopping == "stall",
    )
    bid = planner_scenes.bid(
        asked_at=0,
        sent_at=0,
        granted_at=1,
        ready_at=2,
        lost_at=NOW - 2 if scene.node == "lost" else None,
        lost_how="preempted" if scene.node == "lost" else "",
        notice_at=NOW - (100 if scene.late else 1) if scene.node == "noticed" else None,
    )
    told = hosts or (host(0, scene.first), host(1, scene.second))
    observed = ObservedState(
        zones=frozenset("a"),
        surveyed_at=NOW - 1 if scene.cloud else NOW - 100,
        hosts={NAME: told},
    )
    slot_history = replace(SlotHistory(attempt=attempt), **changes)
    return judge_attempt(slot(), slot_history, bid, observed, NOW)


SCENES = [
    Scene(*row)
    for row in product(
        [*WORKS, "silent", "rebooted"],
        [*WORKS, "silent", "rebooted"],
        ["ready", "lost", "noticed"],
        ["", "stop", "stall"],
        [False, True],
        [False, True],
    )
]


@cache
def every_end() -> tuple[tuple[Scene, AttemptEnd | Pending], ...]:
    return tuple((scene, concluded(scene)) for scene in SCENES)


def test_an_end_that_we_caused_is_no_sign_of_life() -> None:
    killed = replace(WORKS["termed"], stepped_at=NOW - 300, logged_at=NOW - 290)
    assert run_last_sign(killed) == NOW - 290
    assert run_last_sign(replace(killed, deadman=True, termed=False)) == NOW - 290
    assert run_last_sign(replace(WORKS["lost"], ended=NOW - 1)) == NOW - 500
    assert run_last_sign(WORKS["killed"]) == NOW - 4  # by whomever, and not by us
    assert run_last_sign(replace(killed, logged_at=NOW)) == NOW - 5  # drained after its end


def test_a_lost_node_worked_until_it_was_last_heard_and_not_until_it_printed() -> None:
    """Of a gang, until all of its hosts were; a command that hung is heard of all the time."""
    works = [
        HostRun(attempt="a", word=RunState.RUNNING, started=NOW - 900, heard_at=NOW - ago)
        for ago in (3, 40)
    ]
    mute = replace(ATTEMPT, started_at=NOW - 900)
    printed = [replace(work, logged_at=NOW - 500) for work in works]
    steps = replace(mute, first_step_at=NOW - 800)
    stepped = [replace(work, step=9, stepped_at=NOW - 300) for work in works]
    for attempt, runs, kind, expected in [
        (mute, works, Verdict.PREEMPTED, NOW - 40),
        (mute, works, Verdict.STOPPED, NOW - 40),
        (mute, works, Verdict.STALLED, NOW - 900),
        (mute, printed, Verdict.STOPPED, NOW - 500),
        (mute, printed, Verdict.LOST, NOW - 40),
        (steps, stepped, Verdict.NODE_FAULT, NOW - 40),
        (steps, stepped, Verdict.STOPPED, NOW - 300),
        (steps, stepped, Verdict.STALLED, NOW - 300),
        (replace(steps, last_at=NOW - 60), stepped, Verdict.NODE_FAULT, NOW - 60),
    ]:
        assert attempt_last_sign(attempt, kind, runs, None) == expected, (kind, attempt)


def both(scene: Scene) -> set[str]:
    return {scene.first, scene.second}


def over(state: str) -> bool:
    # An attempt that a started host no longer knows is over, too.
    return state in OVER or state == "absent"


def heard_alive(scene: Scene) -> bool:
    return bool(both(scene) & {"runs", "setup", "ending"})


def all_over(scene: Scene) -> bool:
    return all(over(state) for state in both(scene))


def test_a_verdict_needs_reports_of_all_hosts() -> None:
    for scene, found in every_end():
        if scene.stopping:
            expected = all_over(scene) or scene.late
            expected = expected or (scene.node == "lost" and not heard_alive(scene))
        elif scene.node == "lost":
            expected = not heard_alive(scene)
        elif scene.node == "noticed":
            expected = all_over(scene) or (scene.late and not heard_alive(scene))
        else:
            certain = bool(both(scene) & {"complete"}) or both(scene) <= {
                "lost",
                "rebooted",
                "absent",
            }
            expected = all_over(scene) and (scene.cloud or certain)
        assert isinstance(found, AttemptEnd) == expected, scene


def expected_verdict(scene: Scene) -> set[Verdict]:
    """By the weight of the reports."""
    states = both(scene)
    if "complete" in states:
        return {Verdict.SUCCESS}
    if scene.node != "ready":
        return {Verdict.PREEMPTED}
    if states & {"lost", "rebooted", "absent"}:
        return {Verdict.NODE_FAULT}
    failed = states & {"failed", "killed"}
    if "silent" in states and (failed or not scene.stopping):
        return {Verdict.NODE_FAULT}
    if failed:
        return {Verdict.FAILURE}
    if both(scene) == {"well"}:
        return {Verdict.SUCCESS}
    if scene.stopping:
        return {Verdict.STALLED if scene.stopping == "stall" else Verdict.STOPPED}
    if "termed" in states:
        return {Verdict.LOST}
    return {Verdict.SUCCESS}


def test_the_verdict_if_there_is_one() -> None:
    given = 0
    for scene, found in every_end():
        if not isinstance(found, AttemptEnd):
            continue
        given += 1
        assert {found.verdict} == expected_verdict(scene), (scene, found.why)
        assert found.why
        assert found.sure == (scene.node == "lost" or all_over(scene)), scene
        if found.verdict is Verdict.FAILURE:
            named = [scene.first, scene.second][int(found.host[-1])]
            assert named in {"failed", "killed"}
    assert given > 500


def test_after_a_term_or_a_notice_no_exit_status_counts() -> None:
    for scene, found in every_end():
        if isinstance(found, AttemptEnd) and "complete" not in both(scene):
            interrupted = scene.node != "ready" or both(scene) <= {"termed"}
            if interrupted:
                assert found.verdict not in {Verdict.SUCCESS, Verdict.FAILURE}, scene


def test_the_rest_is_stopped_if_and_only_if_one_part_is_over_for_good() -> None:
    for scene, found in every_end():
        if scene.stopping or not isinstance(found, Pending):
            continue
        some = [state for state in both(scene) if over(state)]
        if scene.node == "ready":
            lost = bool(both(scene) & {"lost", "rebooted", "absent"})
            expected = lost and bool(some) and not all_over(scene)
        else:
            expected = heard_alive(scene)
        assert bool(found.broken) == expected, scene


@pytest.mark.parametrize("state", ["failed", "killed", "termed"])
def test_the_other_hosts_of_a_failure_are_waited_for_a_while(state: str) -> None:
    early = host(0, state)
    work = early.works[0]
    ended = NOW - HOLD_S + 1
    held = replace(early, works=(replace(work, ended=ended),))
    found = concluded(Scene(), (held, host(1, "runs")))
    assert isinstance(found, Pending) and not found.broken and found.held
    assert found.wake_at == ended + HOLD_S
    past = replace(early, works=(replace(work, ended=NOW - HOLD_S),))
    found = concluded(Scene(), (past, host(1, "runs")))
    assert isinstance(found, Pending) and f"{NAME}/w0" in found.broken


def test_a_success_of_one_host_does_not_stop_the_others() -> None:
    done = replace(host(0, "well"), works=(replace(WORKS["well"], ended=NOW - 900),))
    assert concluded(Scene(), (done, host(1, "runs"))) == Pending()


def test_the_cloud_is_waited_for_only_so_long() -> None:
    for ago, given in ((HOLD_S - 1, False), (HOLD_S, True)):
        works = replace(WORKS["well"], ended=NOW - ago)
        hosts = tuple(replace(host(one, "well"), works=(works,)) for one in range(2))
        found = concluded(Scene(cloud=False), hosts)
        assert isinstance(found, AttemptEnd) == given
        if isinstance(found, Pending):
            assert found.wake_at == NOW - ago + HOLD_S and found.held


@pytest.mark.parametrize(("node", "margin"), [("ready", STOP_S), ("noticed", NOTICE_S)])
def test_a_stop_waits_for_its_grace_and_a_margin(node: str, margin: float) -> None:
    found = concluded(Scene("runs", "runs", node=node, stopping="stop", late=False))
    assert isinstance(found, Pending) and found.wake_at == NOW - 1 + 30 + margin
    assert found.held


def test_a_host_that_missed_the_stop_is_told_again() -> None:
    for heard, deaf in ((0.0, False), (NOTICE_S + 1, True)):
        hosts = tuple(replace(host(one, "runs"), heard_at=NOW - 1 + heard) for one in range(2))
        found = concluded(Scene(stopping="stop", late=False), hosts)
        assert isinstance(found, Pending) and found.deaf == deaf


def test_a_gang_with_missing_hosts_is_not_over() -> None:
    assert isinstance(concluded(Scene(), (host(0, "well"),)), Pending)


def test_without_its_bid_an_attempt_is_lost() -> None:
    attempt = AttemptRecord(id=ID, number=4, bid=NAME, code_digest="c", launched_at=0)
    found = judge_attempt(slot(), SlotHistory(attempt=attempt), None, ObservedState(), NOW)
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.LOST
    assert found.sure and not found.chips and found.lines == () and found.saved is None


# ---- the start -----------------------------------------------------------------------------------


def started(first: str, second: str, awake_at: float = 0.0, **changes: Any) -> AttemptEnd | Pending:
    attempt = AttemptRecord(
        id=ID,
        number=1,
        bid=NAME,
        code_digest="c",
        launched_at=NOW - LAUNCH_S,
        boots=("b0", "b1"),
    )
    attempt = replace(attempt, **changes)
    bid = planner_scenes.bid(asked_at=0, sent_at=0)
    hosts = {NAME: (host(0, first), host(1, second))}
    observed = ObservedState(
        zones=frozenset("a"), surveyed_at=NOW - 1, hosts=hosts, awake_at=awake_at
    )  # fmt: skip
    return judge_attempt(slot(), SlotHistory(attempt=attempt), bid, observed, NOW)


def test_a_launch_that_a_host_missed_is_resent() -> None:
    for first, second in (("absent", "absent"), ("runs", "absent"), ("silent", "absent")):
        found = started(first, second)
        assert isinstance(found, Pending) and found.absent and not found.broken
        found = started(first, second, launched_at=NOW - LAUNCH_S + 1)
        assert found == Pending(wake_at=NOW + 1, held=True)
        found = started(first, second, launches=LAUNCHES_MAX)
        assert isinstance(found, Pending) and not found.absent and found.broken


def test_a_launch_of_a_dead_engine_is_resent_at_once_where_it_was_missed() -> None:
    """Otherwise a short command ends on one host before the next one starts it."""
    launched_at = NOW - LAUNCH_S + 1
    for awake_at, at_once in ((NOW - LAUNCH_S, False), (launched_at, False), (NOW - 1, True)):
        for first, second in (("absent", "absent"), ("runs", "absent"), ("silent", "absent")):
            found = started(first, second, awake_at=awake_at, launched_at=launched_at)
            assert isinstance(found, Pending) and bool(found.absent) == at_once
        for first, second in (("runs", "silent"), ("silent", "silent")):
            found = started(first, second, awake_at=awake_at, launched_at=launched_at)
            assert found == Pending(wake_at=NOW + 1, held=True)


def test_a_launch_that_started_on_some_hosts_only_is_over() -> None:
    found = started("termed", "absent")
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.LOST and not found.sure
    found = started("failed", "absent")
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE
    assert isinstance(started("failed", "runs"), Pending)


def test_an_unrecorded_start_is_noticed() -> None:
    found = started("runs", "runs")
    assert isinstance(found, Pending) and found.begun
    found = started("runs", "silent")
    assert isinstance(found, Pending) and found.begun
    assert not getattr(started("runs", "absent"), "begun", False)
    assert isinstance(started("well", "well"), AttemptEnd)


# ---- whose fault ---------------------------------------------------------------------------------

GLOO = "JaxRuntimeError: UNKNOWN: Gloo AllGather failed: Connection reset by peer"
FATAL = "Terminating process because the JAX distributed service detected fatal errors"


def failing(tails: list[tuple[float, int, tuple[str, ...]]]) -> AttemptEnd:
    hosts = tuple(
        replace(
            host(number, "failed"),
            works=(replace(WORKS["failed"], ended=ended, exit=code, tail=tail),),
        )
        for number, (ended, code, tail) in enumerate(tails)
    )
    found = concluded(Scene(), hosts)
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE
    return found


def test_the_first_failing_host_is_the_earliest_with_its_own_cause() -> None:
    found = failing([(NOW - 9, 134, (GLOO,)), (NOW - 8, 1, ("ValueError: bad",))])
    assert (found.host, found.exit, found.lines) == (f"{NAME}/w1", 1, ("ValueError: bad",))
    found = failing([(NOW - 8, 1, ("ValueError: b",)), (NOW - 9, 1, ("ValueError: a",))])
    assert found.host == f"{NAME}/w1"
    found = failing([(NOW - 8, 134, (FATAL,)), (NOW - 9, 134, (GLOO,))])
    assert found.host == f"{NAME}/w1"
    found = failing([(NOW - 9, 1, ("ValueError: a",)), (NOW - 9, 1, ("ValueError: a",))])
    assert found.host == f"{NAME}/w0"


@pytest.mark.parametrize(
    ("lines", "code", "signal", "own"),
    [
        ((), 1, None, True),
        ((), 134, None, False),
        ((), -6, None, False),
        ((), None, 6, False),
        ((), None, 9, True),
        (("step 3",), 1, None, True),
        ((GLOO,), 1, None, False),
        (("Traceback (most recent call last):", GLOO), 1, None, False),
        (("MemoryError", GLOO), 134, None, True),
        (("OSError: [Errno 28] No space left on device",), 134, None, True),
        ((FATAL,), 134, None, False),
        (("UNAVAILABLE: Failed to send RPC to coordination service.",), 134, None, False),
        (('grpc_message:"Socket closed"',), 1, None, False),
        ((), 76, None, False),
        (("herd: another process is gone",), 1, None, False),
        ((), 78, None, False),
        (("I can't: herd: no",), 78, None, False),
        (("herd: resumed at step 3",), 78, None, False),
        (("herd: error: too few shards", "bye"), 78, None, True),
    ],
)
def test_own_cause(lines: tuple[str, ...], code: int | None, signal: int | None, own: bool) -> None:
    assert has_own_cause(lines, code, signal) == own


def test_of_several_commands_that_cannot_run_the_one_with_a_reason_counts() -> None:
    found = failing([(NOW - 9, 78, ()), (NOW - 8, 78, ("herd: error: too few shards",))])
    assert (found.host, found.lines) == (f"{NAME}/w1", ("herd: error: too few shards",))


def missing(code: int, *, took_s: float = 0.2, **changes: Any) -> HostStatus:
    """A host whose shell did not find the program."""
    said = "/bin/bash: line 1: python: command not found"
    work = replace(
        WORKS["failed"], started=NOW - 9, ended=NOW - 9 + took_s, exit=code, tail=(said,)
    )
    return replace(host(0, "failed"), works=(replace(work, **changes),))


def test_a_program_missing_on_all_hosts_is_not_retried() -> None:
    for codes in ((127, 127), (126, 126), (126, 127)):
        hosts = tuple(replace(missing(code), worker=n) for n, code in enumerate(codes))
        found = concluded(Scene(), hosts)
        assert isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE and found.unfit
        assert found.why.endswith(": /bin/bash: line 1: python: command not found")
        assert found.event_facts(
            AttemptRecord(id=ID, number=1, bid=NAME, code_digest="", launched_at=0)
        )["unfit"]


def missing_inputs(worker: int, *said: str, **changes: Any) -> HostStatus:
    """A host whose Python ended with these lines."""
    tail = ("Traceback (most recent call last):", '  File "train.py", line 1, in <module>', *said)
    return replace(missing(1, tail=tail, took_s=2.0, **changes), worker=worker)


def test_a_module_missing_on_all_hosts_is_not_retried() -> None:
    no_jax = "ModuleNotFoundError: No module named 'jax'"
    found = concluded(Scene(), (missing_inputs(0, no_jax), missing_inputs(1, no_jax)))
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE and found.unfit
    assert found.why.endswith(f": {no_jax}")
    for other in (
        missing_inputs(1, "OSError: the disk was slow"),
        missing_inputs(1, no_jax, step=3),
        missing_inputs(1, no_jax, termed=True),
    ):
        found = concluded(Scene(), (missing_inputs(0, no_jax), other))
        assert isinstance(found, AttemptEnd) and not found.unfit


@pytest.mark.parametrize(
    "tail",
    [
        (
            '  File "/home/me/bad.py", line 3',
            "    def f(",
            "         ^",
            "SyntaxError: never closed",
        ),
        ('  File "bad.py", line 2', "    x = 1", "IndentationError: unexpected indent"),
        ("Traceback (most recent call last):", '  File "a.py", line 1', "    (", "SyntaxError: no"),
    ],
)
def test_a_script_that_is_no_program_is_not_retried(tail: tuple[str, ...]) -> None:
    hosts = tuple(replace(missing(1, tail=tail, took_s=2.0), worker=worker) for worker in (0, 1))
    found = concluded(Scene(), hosts)
    assert isinstance(found, AttemptEnd) and found.unfit
    assert found.why.endswith(f": {tail[-1]}")
    quoted = replace(missing(1, tail=("log: SyntaxError: x", "bye"), took_s=2.0), worker=1)
    other = concluded(Scene(), (hosts[0], quoted))
    assert isinstance(other, AttemptEnd) and not other.unfit


@pytest.mark.parametrize(
    "other",
    [
        missing(1),
        missing(127, took_s=1.5),
        missing(127, step=3),
        missing(127, termed=True),
        missing(127, started=None),
        host(1, "well"),
        host(1, "killed"),
    ],
    ids=["another status", "later", "stepped", "told to end", "not begun", "well", "killed"],
)
def test_a_program_missing_on_some_hosts_is_retried(other: HostStatus) -> None:
    found = concluded(Scene(), (missing(127), replace(other, worker=1)))
    assert isinstance(found, AttemptEnd) and not found.unfit


def test_a_script_that_says_it_cannot_run_is_not_retried() -> None:
    assert failing([(NOW - 9, 78, ("no batch",)), (NOW - 8, 78, ())]).unfit
    assert not failing([(NOW - 9, 77, ("no batch",)), (NOW - 8, 77, ())]).unfit


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    raise ValueError(text) from error",
    "ValueError: the batch is bad",
)


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ((), ""),
        (("", "  "), ""),
        (("loading", "batch must be divisible by 8", ""), "batch must be divisible by 8"),
        (("loading", "config.yaml: not found", "bye"), "config.yaml: not found"),
        (("step 1", *TRACEBACK), "ValueError: the batch is bad"),
        ((*TRACEBACK, "", "During handling of it", *TRACEBACK[:1], "KeyError: 1"), TRACEBACK[-1]),
        (tuple("[rank0]: " + line for line in (*TRACEBACK, "0.1]]")), TRACEBACK[-1]),
        (
            (
                "  + Exception Group Traceback (most recent call last):",
                "  |   File",
                "  | E: two",
                "  +-+---",
                "    | ValueError: bad",
                "    | 0.1]]",
                "    +---",
            ),
            "E: two",
        ),
        (
            (
                *TRACEBACK[:-1],
                "AssertionError: ",
                "",
                "Arrays are not equal",
                "",
                "x: array([0.1])",
            ),
            "AssertionError: Arrays are not equal",
        ),
        ((*TRACEBACK[:-1], "AssertionError: ", "  ", *TRACEBACK), "AssertionError:"),
        ((*TRACEBACK[:-1], "AssertionError", "Arrays are not equal"), "AssertionError"),
        ((*TRACEBACK[:-1], "a.b.E:"), "a.b.E:"),
        (TRACEBACK[2:], "ValueError: the batch is bad"),
        ((*TRACEBACK, "herd: error: too few shards", "bye"), "too few shards"),
        ((*TRACEBACK, "herd: the loop was left in step 5"), TRACEBACK[-1]),
        (("herd: resumed at step 3", "KeyError: 'lr'"), "KeyError: 'lr'"),
        (("no batch", "herd: skipped the checkpoint of step 6: not found"), "no batch"),
        (("herd: resumed at step 3",), ""),
        ((GLOO, "KeyError: 'lr'"), "KeyError: 'lr'"),
        ((GLOO,), ""),
        (("    no error in a column",), "no error in a column"),
        (("\x1b[31mKeyError\x1b[0m: \u202e1\t2",), "KeyError:  1 2"),
        (("x" * 300,), "x" * 200 + "…"),
        (("x" * 200,), "x" * 200),
    ],
)
def test_the_cause_is_the_first_matching_line(lines: tuple[str, ...], cause: str) -> None:
    assert find_cause(lines) == cause


def test_the_cause_is_in_the_message() -> None:
    found = failing([(NOW - 9, 1, TRACEBACK), (NOW - 8, 1, (GLOO,))])
    said = f"{NAME}/w0 exited with 1: ValueError: the batch is bad"
    assert found.why == said


def test_hosts_that_exit_because_one_was_stopped_are_no_failure() -> None:
    left = replace(WORKS["failed"], exit=75)
    hosts = (host(0, "termed"), replace(host(1, "failed"), works=(left,)))
    for stopping, verdict in (("", Verdict.LOST), ("stop", Verdict.STOPPED)):
        found = concluded(Scene(stopping=stopping), hosts)
        assert isinstance(found, AttemptEnd) and found.verdict is verdict
    alone = (host(0, "well"), hosts[1])
    found = concluded(Scene(), alone)
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE
    found = concluded(Scene(stopping="stop"), alone)
    assert isinstance(found, AttemptEnd) and found.verdict is Verdict.STOPPED


@pytest.mark.parametrize(
    "line",
    [
        "UNKNOWN: TPU initialization failed: open(/dev/vfio/0): Device or resource busy",
        "Couldn't open iommu group /dev/vfio/0",
        "ABORTED: The TPU is already in use by process with pid 27.",
        "Internal error when accessing libtpu multi-process lockfile.",
        "RuntimeError: Unable to initialize backend 'tpu': ABORTED",
        "open(/dev/accel0): Device or resource busy",
        "observed errors are: [Hardware]",
        "herd: error: the hosts are not alike: the number of chips is 3 for process 1, but 4 for 3",
    ],
)
def test_failing_chips_are_a_node_fault(line: str) -> None:
    assert chips_failed(["loading", line])
    works = replace(WORKS["failed"], tail=(line,))
    hosts = (replace(host(0, "failed"), works=(works,)), host(1, "failed"))
    found = concluded(Scene(), hosts)
    assert isinstance(found, AttemptEnd)
    assert found.verdict is Verdict.NODE_FAULT and found.chips
    said = line.removeprefix("herd: error: ")
    assert found.why.endswith(f"w0 exited with 3: its chips failed to initialize: {said}")
    # Once it has taken a step, the chips were up; and if they come up nowhere, it is the command.
    begun = (replace(host(0, "failed"), works=(replace(works, step=1),)), host(1, "failed"))
    for found in (concluded(Scene(), begun), concluded(Scene(), hosts, faults=CHIPS_MAX)):
        assert (
            isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE and not found.chips
        )


def test_a_host_that_could_not_start_the_command_is_a_node_fault() -> None:
    why = "the host could not begin it: No space left on device"
    works = replace(WORKS["failed"], why=why, code=EndCode.UNBORN)
    hosts = (replace(host(0, "failed"), works=(works,)), host(1, "failed"))
    found = concluded(Scene(), hosts)
    assert (
        isinstance(found, AttemptEnd) and found.verdict is Verdict.NODE_FAULT and why in found.why
    )
    begun = (replace(host(0, "failed"), works=(replace(works, step=1),)), host(1, "failed"))
    for found in (concluded(Scene(), begun), concluded(Scene(), hosts, faults=CHIPS_MAX)):
        assert isinstance(found, AttemptEnd) and found.verdict is Verdict.FAILURE


def test_the_words_of_an_agent_without_codes_decide_nothing() -> None:
    ends = {
        "the host could not begin it: No space left on device": Verdict.FAILURE,
        "ended by herd clean of you@vm": Verdict.FAILURE,
    }
    for why, verdict in ends.items():
        works = replace(WORKS["failed"], why=why)
        hosts = (replace(host(0, "failed"), works=(works,)), host(1, "failed"))
        found = concluded(Scene(), hosts)
        assert isinstance(found, AttemptEnd) and found.verdict is verdict


def test_an_ordinary_error_is_no_node_fault() -> None:
    assert not chips_failed(["ValueError: TPU", "error"])


def test_the_last_reports_of_the_hosts_are_kept() -> None:
    first = replace(WORKS["failed"], saved=10, step=19, tail=tuple(map(str, range(50))))
    second = replace(WORKS["killed"], saved=20, step=15)
    hosts = (
        replace(host(0, "failed"), works=(first,)),
        replace(host(1, "killed"), works=(second,)),
    )
    found = concluded(Scene(), hosts)
    assert isinstance(found, AttemptEnd)
    # The gang makes no progress once its first host has failed.
    assert (found.saved, found.step, found.last_at) == (20, 19, NOW - 5)
    assert found.lines == tuple(map(str, range(30, 50)))
    attempt = AttemptRecord(id=ID, number=1, bid=NAME, code_digest="c", launched_at=0)
    facts = found.event_facts(attempt)
    assert facts["verdict"] == "failure" and facts["attempt"] == ID and facts["bid"] == NAME


def test_the_end_names_the_known_failure_that_explains_it() -> None:
    full = "OSError: [Errno 28] No space left on device"
    found = failing([(NOW - 9, 134, (GLOO,)), (NOW - 8, 1, ("step 3", full))])
    attempt = AttemptRecord(id=ID, number=1, bid=NAME, code_digest="c", launched_at=0)
    assert found.finding == found.event_facts(attempt)["finding"] == "disk-full"
    assert failing([(NOW - 9, 134, (GLOO,)), (NOW - 8, 134, (GLOO,))]).finding == "peer-socket"
    assert failing([(NOW - 9, 1, TRACEBACK), (NOW - 8, 1, ())]).finding == ""
    assert failing([(NOW - 9, 137, ()), (NOW - 8, 1, (GLOO,))]).finding == "killed"
    killed = concluded(Scene("killed", "killed"))
    assert isinstance(killed, AttemptEnd) and killed.finding == "killed"


def test_a_stall_is_explained_by_the_warning_of_any_host() -> None:
    fork = "RuntimeWarning: os.fork() was called."
    quiet = replace(WORKS["termed"], tail=("step 3",))
    hung = replace(WORKS["termed"], tail=("step 3", fork))
    hosts = tuple(
        replace(host(number, "termed"), works=(work,)) for number, work in enumerate((quiet, hung))
    )
    stalled = concluded(Scene(stopping="stall"), hosts)
    assert isinstance(stalled, AttemptEnd)
    assert (stalled.verdict, stalled.finding) == (Verdict.STALLED, "fork")
    stopped = concluded(Scene(stopping="stop"), hosts)
    assert isinstance(stopped, AttemptEnd) and stopped.finding == ""
