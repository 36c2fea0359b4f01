"""The policy laboratory's runs of the real engine: accounts, faults, notices, equal reruns."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tpuherd_lab import policy_run
from tpuherd_lab.capacity import Capacity
from tpuherd_lab.constants import DAY, FAST, HOUR, Constants
from tpuherd_lab.engine_run import EngineCase, Laboratory, run_engine
from tpuherd_lab.policy_run import PolicyRun
from tpuherd_lab.virtual_loop import run as run_virtually

ZONES = (
    Capacity("east-a", ((600.0, 20_000.0), (50_000.0, 90_000.0)), "east"),
    Capacity("east-b", ((0.0, 4_000.0), (30_000.0, 86_400.0)), "east"),
    Capacity("west-a", ((15_000.0, 26_000.0), (60_000.0, 90_000.0)), "west"),
)
NOWHERE_S = 4_000.0  #: from 26,000 to 30,000 no zone has capacity


def case_of(constants: Constants = FAST, *, gang: int = 1, seed: int = 1) -> EngineCase:
    return EngineCase(
        policy="tpuherd",
        traces="made",
        seed=seed,
        gang=gang,
        length_s=DAY,
        zones=ZONES,
        constants=constants,
    )


@pytest.mark.parametrize("gang", [1, 4])
def test_every_second_is_booked_and_nothing_is_left(gang: int) -> None:
    run = run_engine(case_of(gang=gang))
    assert run.badput[policy_run.CAPACITY] == pytest.approx(NOWHERE_S, abs=1)
    assert [round(loss.lost_at) for loss in run.losses] == [4_000, 20_000, 26_000]
    assert run.goodput > 0.93
    assert run.orphans == 0 and run.leaked_s == 0
    assert 0 <= run.hedge_waste_s < 100 and run.productive_s < run.billed_s < DAY
    assert run.hops == 2
    for loss in run.losses:
        assert loss.detected_at == pytest.approx(loss.lost_at + FAST.signal_s, abs=1)
        assert loss.capacity_was_there is (loss.lost_at < 26_000)
        if loss.capacity_was_there:
            assert loss.with_capacity_s is not None and 100 < loss.with_capacity_s < 250


def test_a_notice_saves_the_work() -> None:
    without, warned = run_engine(case_of()), run_engine(case_of(replace(FAST, notice_s=30)))
    assert without.steps_lost_s > 100
    assert warned.steps_lost_s == 0
    assert warned.productive_s > without.productive_s


def test_whoever_is_warned_in_time_saves_less_often() -> None:
    """Nine lives of 2.5 hours, each with a notice: no work was ever lost."""
    up = tuple((at * 3 * HOUR, (at * 3 + 2.5) * HOUR) for at in range(9))
    case = replace(case_of(replace(FAST, notice_s=30)), zones=(Capacity("east-a", up, "east"),))
    lab = Laboratory(replace(case, length_s=up[-1][1]))
    run = run_virtually(lab.run_job())
    blocked = [span.blocked_s for span in lab.progress.spans]
    assert run.steps_lost_s == 0 and len(blocked) == 9
    assert blocked[-1] < 0.6 * blocked[1]
    assert [span.losses for span in lab.progress.spans] == [0] * 9


def test_crashes_and_hangs_end_soon() -> None:
    faults = replace(FAST, crash_every_s=3 * HOUR, hang_every_s=4 * HOUR)
    run = run_engine(case_of(faults, seed=2))
    assert 0 < run.badput[policy_run.DOWN] < 10 * 30
    assert 600 < run.badput[policy_run.HUNG] < 5 * 700
    assert run.goodput > 0.86


def test_a_hang_ends_after_ten_minutes() -> None:
    lab = Laboratory(case_of())
    lab.training.hangs = (70_001.3,)
    run_virtually(lab.run_job())
    hung = next(one for one in lab.training.all_runs if one.hung_at == 70_001.3)
    assert 600 < hung.over_at - 70_001 < 660


RERUN = """
import sys; sys.path[:0] = sys.argv[1:]
from tests.simulated.test_lab_engine import case_of
from tpuherd_lab.engine_run import run_engine
print(run_engine(case_of(gang=4)))
"""


def test_a_rerun_is_the_same_to_the_byte() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") else "7"}
    command = [sys.executable, "-c", RERUN, *filter(None, sys.path)]
    again = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert b"digest" in again
    assert again.decode().strip() == str(run_engine(case_of(gang=4)))


def test_seeds_differ() -> None:
    runs: list[PolicyRun] = [run_engine(case_of(seed=seed)) for seed in (1, 2)]
    assert runs[0].digest != runs[1].digest
