"""The policy laboratory runs the real engine: accounts, notices, equal reruns, and its command."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench.lab import account
from bench.lab.__main__ import main
from bench.lab.bounds import most_productive_s
from bench.lab.capacity import Capacity
from bench.lab.constants import FAST, Constants
from bench.lab.engine_run import EngineCase, Laboratory, run_engine

from tests.simulated.virtual_loop import run as run_virtually

HOUR, DAY = 3600.0, 86_400.0
ZONES = (
    Capacity("east-a", ((600.0, 20_000.0), (50_000.0, 90_000.0)), "east"),
    Capacity("east-b", ((0.0, 4_000.0), (30_000.0, 86_400.0)), "east"),
    Capacity("west-a", ((15_000.0, 26_000.0), (60_000.0, 90_000.0)), "west"),
)
NOWHERE_S = 4_000.0  #: from 26,000 to 30,000 no zone has capacity
LOSS_MAX = 0.002  #: of the ratio to the bound, before somebody must say why


def case_of(constants: Constants = FAST, *, gang: int = 1, seed: int = 1) -> EngineCase:
    return EngineCase(
        policy="tpuherd", seed=seed, gang=gang, length_s=DAY, zones=ZONES, constants=constants
    )


def test_every_second_is_booked_for_a_gang_too() -> None:
    run = run_engine(case_of(gang=4))
    assert run.badput[account.CAPACITY] == pytest.approx(NOWHERE_S, abs=1)
    assert run.badput == run_engine(case_of()).badput


def test_the_policy_is_as_good_as_it_was_and_a_notice_saves_the_work() -> None:
    bound = most_productive_s(ZONES, FAST.boot_s)
    for notice_s, before in ((0, 0.9438), (30, 0.9511)):
        made = replace(FAST, notice_s=notice_s)
        runs = [run_engine(case_of(made, seed=seed)) for seed in (1, 2, 3)]
        assert sum(run.productive_s / bound for run in runs) / 3 > before - LOSS_MAX
        assert all((run.badput[account.WASTED] == 0) == (notice_s > 0) for run in runs)


def test_whoever_is_warned_in_time_saves_less_often(tmp_path: Path) -> None:
    """Nine lives of 2.5 hours, each with a notice: no work was ever lost."""
    up = tuple((at * 3 * HOUR, (at * 3 + 2.5) * HOUR) for at in range(9))
    case = replace(case_of(replace(FAST, notice_s=30)), zones=(Capacity("east-a", up, "east"),))
    lab = Laboratory(replace(case, length_s=up[-1][1]), tmp_path)
    run = run_virtually(lab.run_job())
    blocked = [span.blocked_s for span in lab.training.progress.spans]
    assert run.badput[account.WASTED] == 0 and len(blocked) == 9
    assert blocked[-1] < 0.6 * blocked[1]
    assert [span.losses for span in lab.training.progress.spans] == [0] * 9


RERUN = """import sys; sys.path[:0] = sys.argv[1:]
from bench.lab.engine_run import run_engine
from tests.simulated.test_benchmark_lab import case_of
print(run_engine(case_of(gang=4)))
"""


def test_a_rerun_is_the_same_to_the_byte() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") else "7"}
    command = [sys.executable, "-c", RERUN, *filter(None, sys.path)]
    again = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert again.decode().strip() == str(run_engine(case_of(gang=4)))
    assert run_engine(case_of(seed=1)) != run_engine(case_of(seed=2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "set-1-node"
    made.mkdir()
    for zone, nodes in (("us-east1-a", [1] * 40 + [0] * 20), ("us-east1-b", [0] * 30 + [1] * 30)):
        content = {"metadata": {"gap_seconds": 300}, "data": nodes}
        (made / f"{zone}_v4_1.json").write_text(json.dumps(content))
    return made


def test_a_row_for_each_policy_and_set(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["--traces", str(folder), "--policy", "tpuherd", "--policy", "tpucare", "--seeds", "2"]
    printed = set()
    for processes in "12":
        assert main([*asked, "--json", "--processes", processes]) == 0
        printed.add(capfd.readouterr().out)
    assert len(printed) == 1, "the same bytes for any number of processes"
    ours, theirs = json.loads(printed.pop())["rows"]
    assert (ours["policy"], theirs["policy"]) == ("tpuherd", "tpucare")
    assert (ours["traces"], ours["window"]) == ("set-1-node", [0, 18_000])
    assert 1 >= ours["ratio"] > theirs["ratio"] and ours["bound"] == theirs["bound"] > 0.9
    assert main([*asked, "--start", "slow"]) == 0
    assert capfd.readouterr().out.startswith("set-1-node  tpuherd")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--traces", "/no/such/folder"], "cannot read /no/such/folder: No such file"),
        (["--traces", ".", "--policy", "tpucair"], "invalid choice: 'tpucair'"),
    ],
)
def test_bad_choices_end_in_a_sentence(
    asked: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 2
    assert said in capfd.readouterr().err
