"""What the shipped policy reaches on frozen capacity, and `herd sim policies` with bad input."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import CliRunner

from tpuherd.cli.sim import sim
from tpuherd_host.train import save_interval
from tpuherd_lab.bounds import upper_bound
from tpuherd_lab.compare_policies import SetSource, find_policies, run_policy
from tpuherd_lab.constants import FAST, Constants, add_faults
from tpuherd_lab.generator import generate_set
from tpuherd_lab.policy_sweep import FACTORS, blank_case, sweep_factor
from tpuherd_lab.traces import TraceSet

DAYS = 1.5
LOSS_MAX = 0.002  #: of the ratio to the bound, before somebody must say why
#: Name → kind of capacity, constants, and the ratio when this was written.
FROZEN: dict[str, tuple[str, Constants, float]] = {
    "churn": ("tpu-churn", FAST, 0.968),
    "churn with faults": ("tpu-churn", add_faults(FAST), 0.9631),
    "churn with notice": ("tpu-churn", replace(FAST, notice_s=30), 0.9838),
    "gangs of 4": ("tpu-gang-4", FAST, 0.9766),
    "short ticks": ("tpu-ticks-32s", FAST, 0.979),
    "long ticks": ("tpu-ticks-10min", FAST, 0.9757),
}


def first_days(kind: str, seed: int) -> TraceSet:
    made = generate_set(kind, seed)
    zones = tuple(
        replace(zone, nodes=zone.nodes[: int(DAYS * 86_400 / zone.tick_s)]) for zone in made.zones
    )
    return replace(made, zones=zones)


@pytest.mark.parametrize("name", FROZEN)
def test_the_policy_is_as_good_as_it_was(name: str) -> None:
    kind, constants, before = FROZEN[name]
    ratios = []
    for seed in (1, 2, 3):
        traces = first_days(kind, seed)
        run = run_policy("tpuherd", traces, seed, constants)
        assert run.orphans == 0
        ratios.append(run.goodput / upper_bound(traces, seed))
    assert fmean(ratios) >= before - LOSS_MAX, f"{fmean(ratios):.4f}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "set-1-node"
    made.mkdir()
    for zone, nodes in (("us-east1-a", [1] * 40 + [0] * 20), ("us-east1-b", [0] * 30 + [1] * 30)):
        content = {"metadata": {"gap_seconds": 300}, "data": nodes}
        (made / f"{zone}_v4_1.json").write_text(json.dumps(content))
    return made


def test_tables_and_json(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "policies.svg"
    asked = ["policies", "--traces", str(folder), "--policy", "tpuherd", "--policy", "tpucare",
             "--seeds", "1", "--processes", "1"]  # fmt: skip
    shown = CliRunner().invoke(sim, [*asked, "--svg", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert "set-1-node" in shown.output and "slow start" in shown.output
    assert picture.read_text().startswith("<svg")
    found = json.loads(CliRunner().invoke(sim, [*asked, "--json"]).stdout)
    assert [row["policy"] for row in found["rows"]] == ["tpuherd", "tpucare"]
    ours, theirs = found["rows"]
    assert 1 >= ours["ratio"] > theirs["ratio"] and ours["bound"] == theirs["bound"] > 0.9
    assert len(found["slow_rows"]) == 2


def test_the_same_bytes_for_any_number_of_processes(folder: Path) -> None:
    asked = ["policies", "--traces", str(folder), "--policy", "tpuherd", "--policy", "tpucare",
             "--seeds", "2", "--faults", "--json"]  # fmt: skip
    printed = {
        CliRunner().invoke(sim, [*asked, "--processes", many]).stdout_bytes for many in "123"
    }
    assert len(printed) == 1
    assert b'"fault_rows"' in printed.pop()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--policy", "tpucair"], "there is no policy 'tpucair': did you mean tpucare?"),
        (["--generated", "churn"], "there is no kind of capacity 'churn'"),
        (["--sweep", "stall"], "there is no constant 'stall': did you mean stall_s?"),
        (["--traces", "/no/such/folder"], "cannot read /no/such/folder: No such file"),
    ],
)
def test_bad_choices_end_in_a_sentence(asked: list[str], said: str) -> None:
    result = CliRunner().invoke(sim, ["policies", *asked])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "content", ["{", '{"metadata": {"gap_seconds": 300}, "data": [1, null, 1]}', "[]"]
)
def test_damaged_traces_end_in_a_sentence(folder: Path, content: str) -> None:
    (folder / "us-east1-c_v4_1.json").write_text(content)
    result = CliRunner().invoke(sim, ["policies", "--traces", str(folder)])
    assert result.exit_code == 2
    assert "us-east1-c_v4_1.json is not a trace" in " ".join(result.stderr.split())


def test_a_sweep_leaves_the_constants_as_they_were(folder: Path) -> None:
    shipped = save_interval.LIFE_S
    rows = sweep_factor("life_s", SetSource("set-1-node", folder), 1)
    assert save_interval.LIFE_S == shipped == rows[0].value
    assert [row.shipped for row in rows] == [True, False, False, False, False]
    assert len({row.goodput for row in rows}) > 1


def test_every_factor_exists() -> None:
    for factor in FACTORS.values():
        with factor.set_value(blank_case(), factor.values[0]):
            pass
    assert find_policies(()) == find_policies(find_policies(()))
