"""Policies with a deadline in windows of capacity: what they cost, and that none is late."""

import io
import json
import os
import tarfile
from itertools import product
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner

from tpuherd.cli.sim_policies import policies
from tpuherd_lab.deadline_optimum import bound_deadline_cost
from tpuherd_lab.deadline_runs import (
    DEADLINE_POLICIES,
    FIRM_NODE,
    HOUR_S,
    NO_NODE,
    DeadlineState,
    DeadlineTask,
    DeadlineWindow,
    run_deadline,
)
from tpuherd_lab.deadline_study import run_deadline_study, single_zones
from tpuherd_lab.deadline_table import deadline_rows, deadline_text
from tpuherd_lab.deadline_windows import read_deadline_windows
from tpuherd_lab.traces import TraceError

TICK_S = 600.0
ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("HERD_TRACES", ROOT.parent / "shared" / "traces"))


def window(*zones: str) -> DeadlineWindow:
    """A letter a tick: s has spot, . has none."""
    has = tuple(tuple(letter == "s" for letter in zone) for zone in zones)
    return DeadlineWindow(name="w", tick_s=TICK_S, zones=has)


def task(work: int, deadline: int, start: float = 0.5) -> DeadlineTask:
    """In ticks; spot costs 1 a tick, on-demand 3."""
    per_hour = HOUR_S / TICK_S
    return DeadlineTask(work_s=work * TICK_S, deadline_s=deadline * TICK_S, start_s=start * TICK_S,
                        spot_price=per_hour, firm_price=3 * per_hour)  # fmt: skip


def cheapest(where: DeadlineWindow, wanted: DeadlineTask) -> float:
    """By trying everything; for few ticks."""
    ticks = int(wanted.deadline_s // TICK_S)
    best = inf
    for plan in product((NO_NODE, FIRM_NODE, *range(len(where.zones))), repeat=ticks):
        states = iter(plan)

        def policy(state: DeadlineState) -> int:
            node = next(states)  # noqa: B023
            return node if node < 0 or node in state.spot else NO_NODE

        run = run_deadline(where, wanted, policy)
        best = min(best, run.dollars if run.ended_s < inf else inf)
    return best


@pytest.mark.parametrize(
    "zones", [("sss...ss",), ("s.s.s.s.",), ("........",), ("ss....ss", "..ss....")]
)
def test_the_optimum_is_never_above_the_cheapest_plan_and_close_to_it(
    zones: tuple[str, ...],
) -> None:
    wanted = task(4, 7)
    found = bound_deadline_cost(window(*zones), wanted)
    best = cheapest(window(*zones), wanted)
    assert found.dollars <= best + 1e-6
    assert found.dollars >= best - 2.5  # the last tick is paid in full, and starts are lumps
    assert found.dollars <= found.reached


def test_no_policy_is_late_or_cheaper_than_the_optimum() -> None:
    """Windows of every kind: spot that is there, never, late, at first, and by turns."""
    kinds = ["s" * 80, "." * 80, "." * 40 + "s" * 40, "s" * 20 + "." * 60, "sss.." * 16, "s." * 40]
    for kind, deadline, start in product(kinds, (45, 52, 70), (0.0, 0.4, 1.5)):
        wanted = task(40, deadline, start)
        least = bound_deadline_cost(window(kind), wanted).dollars
        for name, policy in DEADLINE_POLICIES.items():
            run = run_deadline(window(kind), wanted, policy)
            assert run.ended_s <= wanted.deadline_s, (name, kind, deadline, start)
            assert run.dollars >= least - 1e-6, (name, kind)


def test_what_each_policy_does_in_a_window_that_can_be_reckoned() -> None:
    where, wanted = window("s" * 10 + "." * 10 + "s" * 40), task(30, 50, 0.0)
    runs = {name: run_deadline(where, wanted, policy) for name, policy in DEADLINE_POLICIES.items()}
    assert runs["on-demand"].dollars == pytest.approx(90)
    assert runs["greedy"].dollars == pytest.approx(30)
    assert runs["spot-then-on-demand"].dollars == pytest.approx(50)
    assert 30 <= runs["tpuherd"].dollars <= 50
    assert runs["tpuherd"].dollars <= runs["uniform-progress"].dollars


def written_windows(folder: Path) -> None:
    """Two zones, two windows, as Can't Be Late writes them: 1 is a tick without spot."""
    for zone, number in product(("a", "b"), (0, 1)):
        (folder / zone).mkdir(exist_ok=True, parents=True)
        lacks = [int(zone == "b" and tick % 3 == 0) for tick in range(900)]
        text = json.dumps({"metadata": {"gap_seconds": 300}, "data": lacks})
        (folder / zone / f"{number}.json").write_text(text)


def test_windows_are_read_from_folders_and_archives(tmp_path: Path) -> None:
    written_windows(tmp_path / "plain")
    found = read_deadline_windows(tmp_path / "plain", HOUR_S)
    assert [(one.name, one.tick_s, len(one.zones)) for one in found] == [
        ("0", 300, 2),
        ("1", 300, 2),
    ]
    assert found[0].zones_with_spot(0) == [0] and found[0].zones_with_spot(1) == [0, 1]
    assert found[0].zones_with_spot(10_000) == []
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "windows.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "plain", "windows")
    assert read_deadline_windows(tmp_path / "packed", HOUR_S) == found


def test_usual_traces_are_cut(tmp_path: Path) -> None:
    text = json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 0] * 600})
    (tmp_path / "zone-a.json").write_text(text)
    found = read_deadline_windows(tmp_path, 52 * HOUR_S)
    assert len(found) > 5 and all(len(one.zones[0]) == 312 for one in found)
    with pytest.raises(TraceError, match="shorter than the 300 h"):
        read_deadline_windows(tmp_path, 300 * HOUR_S)


@pytest.mark.parametrize("content", ["", "[]", '{"metadata": {}}', '{"metadata": {"gap_seconds": '
                                     '195}, "data": [0, 7]}'])  # fmt: skip
def test_a_bad_window_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.json").write_text(content)
    with pytest.raises(TraceError, match=r"a/0\.json is not a window"):
        read_deadline_windows(tmp_path, HOUR_S)
    (tmp_path / "a" / "0.json").unlink()
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    with pytest.raises(TraceError, match="cannot read"):
        read_deadline_windows(tmp_path, HOUR_S)


def test_a_study_has_each_policy_at_each_deadline_and_misses_nothing(tmp_path: Path) -> None:
    written_windows(tmp_path)
    rows = run_deadline_study(tmp_path)
    assert len(rows) == (len(DEADLINE_POLICIES) + 1) * 2 * 2 * 2
    assert {row.missed for row in rows} == {0}
    assert {row.deadline_h for row in rows} == {52, 70}
    assert json.loads(json.dumps(deadline_rows(rows)))[0]["policy"] == "tpuherd"
    text = deadline_text(rows)
    assert "all zones, done by 52 h, 3 min a start, 2 windows" in text
    assert all(len(line) <= 100 for line in io.StringIO(text))


def test_on_cant_be_lates_windows_it_costs_less_than_uniform_progress() -> None:
    """A part of what `herd sim policies --deadline` prints."""
    folder = TRACES / "deadline-windows"
    if not folder.is_dir():
        pytest.skip("no traces: set HERD_TRACES to a folder that has deadline-windows")
    windows = read_deadline_windows(folder, 52 * HOUR_S)
    alone = [zone for one in windows[::25] for zone in single_zones(one)]
    for start_h in (0.05, 0.2):
        wanted = DeadlineTask(start_s=start_h * HOUR_S)
        ours, theirs = (
            [run_deadline(one, wanted, DEADLINE_POLICIES[name]) for one in alone]
            for name in ("tpuherd", "uniform-progress")
        )
        assert all(run.ended_s <= wanted.deadline_s for run in (*ours, *theirs))
        assert sum(run.dollars for run in ours) < 0.98 * sum(run.dollars for run in theirs)


def test_the_command_needs_traces_and_prints_every_policy(tmp_path: Path) -> None:
    written_windows(tmp_path)
    user = CliRunner()
    bare = user.invoke(policies, ["--deadline"])
    assert bare.exit_code == 2 and "--deadline needs --traces" in bare.output
    empty = tmp_path / "empty"
    empty.mkdir()
    bad = user.invoke(policies, ["--deadline", "--traces", str(empty)])
    assert bad.exit_code == 2 and "has no traces" in bad.output
    found = user.invoke(policies, ["--deadline", "--traces", str(tmp_path), "--json"])
    assert found.exit_code == 0, found.output
    assert {row["policy"] for row in json.loads(found.output)["rows"]} >= set(DEADLINE_POLICIES)
