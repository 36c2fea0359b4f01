"""Accounting against the known truth: what a gang really worked, for each way it may end.

The gang's own clock is the truth here: it works from its first step to its last one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_lifecycles import progress
from tests.simulated.engine_programs import Crash, Script
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import GoodputState, SlotAccount, find_recoveries
from tpuherd.model.slots_and_plan import Goal

NODE = "gpt-0-g1-7kq"
STEP_S = 5.0
NEAR_S = STEP_S + 2.0  #: each end is known as precisely as steps are reported
LIMITS = {"stall_s": 120.0, "first_step_s": 300.0, "stalls": 0, "failures": 0}
DEADMAN_S = 72 * 3600.0

Interruption = Callable[[EngineHarness], Awaitable[None]]


def job(**limits: float) -> SimJob:
    return SimJob(zones=("us-east5-a",), limits={**LIMITS, **limits})


async def nothing(play: EngineHarness) -> None:
    """It ends by itself."""


async def lose_node(play: EngineHarness, kind: str, **said: object) -> None:
    play.sim.weather(kind, target=f"{NODE}/*" if kind == "reboot" else NODE, **said)


async def warn(play: EngineHarness) -> None:
    await lose_node(play, "preempt", notice_s=30)


async def take(play: EngineHarness) -> None:
    await lose_node(play, "preempt", notice_s=0)


async def reboot(play: EngineHarness) -> None:
    await lose_node(play, "reboot")


async def freeze(play: EngineHarness) -> None:
    play.sim.weather("hang", target=f"{NODE}/w0")


async def kill(play: EngineHarness) -> None:
    """One of its processes is killed by somebody else."""
    machine = next(one for one in play.sim.machines() if one.name == f"{NODE}/w1")
    machine.processes["gpt-0-a1-7kq"].kill_all()


async def stop(play: EngineHarness) -> None:
    play.submit(SimJob(zones=("us-east5-a",), goal=Goal.IDLE, limits=LIMITS))


async def stop_late(play: EngineHarness) -> None:
    """The user sees that it hangs, and stops it."""
    await play.advance(100.0)
    await stop(play)


async def down(play: EngineHarness) -> None:
    play.down("gpt")


async def leave_alone(play: EngineHarness) -> None:
    """Without an engine for days, the host stops the attempt itself."""
    play.wanted = False
    play.kill()
    await play.advance(DEADMAN_S + 1200.0)
    play.wanted = True


SLOW = Script(steps=600, step_s=600.0)
LONG = Script(steps=400, step_s=STEP_S)
ENDS: dict[str, tuple[Script, Interruption, str, GoodputState | None]] = {
    "exit 0": (Script(steps=20), nothing, "success", None),
    "failure": (Script(steps=99, crashes={1: Crash(step=20)}), nothing, "failure", None),
    "crash": (LONG, kill, "failure", None),
    "hang silent from start": (
        Script(hangs={1: 0}, on_term="die"),
        nothing,
        "stalled",
        GoodputState.HUNG,
    ),
    "hang after output": (
        Script(steps=99, hangs={1: 9}, on_term="die"),
        nothing,
        "stalled",
        GoodputState.HUNG,
    ),
    "hang stopped by user": (
        Script(steps=99, hangs={1: 9}, on_term="die"),
        stop_late,
        "stopped",
        GoodputState.HUNG,
    ),
    "frozen host": (LONG, freeze, "node fault", GoodputState.DETECT),
    "preempted with notice": (LONG, warn, "preempted", None),
    "preempted without notice": (LONG, take, "preempted", None),
    "reboot": (LONG, reboot, "node fault", None),
    "stop by user": (LONG, stop, "stopped", None),
    "down": (LONG, down, "stopped", None),
}
DEADMAN = (SLOW, leave_alone, "node fault", None)


@pytest.mark.parametrize("reports", [True, False], ids=["steps", "prints"])
@pytest.mark.parametrize("end", ENDS)
def test_the_account_matches_the_real_work_of_a_gang(end: str, reports: bool) -> None:
    compare_with_books(*ENDS[end], reports=reports)


@pytest.mark.parametrize("reports", [True, False], ids=["steps", "prints"])
def test_the_account_matches_when_the_host_stops_it_after_days_alone(reports: bool) -> None:
    compare_with_books(*DEADMAN, reports=reports)


def compare_with_books(
    script: Script,
    interruption: Interruption,
    verdict: str,
    lost_in: GoodputState | None,
    *,
    reports: bool,
) -> None:
    """EngineHarness one end of a gang; the books must say what it worked."""
    script = replace(script, reports=reports)

    async def plot(play: EngineHarness) -> None:
        slow = script.step_s > STEP_S
        play.submit(job(stall_s=4000.0, first_step_s=4000.0) if slow else job())
        begun = 0 if script.hangs.get(1) == 0 else 2 if slow else 8
        assert await play.until(lambda: progress(play, "gpt-0") >= begun, 2 * 3600.0)
        await interruption(play)
        assert await play.until(lambda: bool(play.events("attempt.ended")), 2 * 3600.0)
        ended = play.events("attempt.ended")[0]
        assert ended.facts["verdict"] == verdict, ended.facts
        events = [one for one in play.events() if one.at <= ended.at]
        account = build_accounts(events, ended.at)["gpt-0"]
        started = next(one.at for one in events if one.kind == "attempt.started")
        compare(play, account, started, reports, script.step_s)
        if lost_in is not None:
            assert account.seconds.get(lost_in, 0.0) > 60.0
            if verdict != "stopped":
                after = build_accounts(play.events(), play.sim.clock.now())["gpt-0"]
                assert after.state in {GoodputState.GAVE_UP} or find_recoveries(after)

    perform(plot, scripts={"gpt": script})


def compare(
    play: EngineHarness, account: SlotAccount, started: float, reports: bool, step_s: float
) -> None:
    """Work is from the first word of it to the last sign of it, to within a step."""
    times = play.sim.fleet.gangs["gpt-0-a1-7kq"].stepped
    loop_s = play.sim.clock.start
    truth = loop_s + times[-1] - (loop_s + times[0] if reports else started) if times else 0.0
    state = GoodputState.PRODUCTIVE if reports else GoodputState.UNREPORTED
    worked = account.seconds.get(state, 0.0)
    near = max(NEAR_S, step_s + 2.0)
    if not times:
        near = 30.0  # what it said as it began is a sign of life
    assert abs(worked - truth) <= near, (worked, truth, account.seconds)
    for before, after in pairwise(account.spans):
        assert before.end == after.start
