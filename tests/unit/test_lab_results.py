"""Runs become rows, rows a table for any width, JSON and a picture."""

import json
from xml.etree import ElementTree

import pytest

from tpuherd_lab.bounds import Bounds
from tpuherd_lab.constants import FAST, NAIVE
from tpuherd_lab.policy_run import CAPACITY, SETUP, PolicyRun, Recovery
from tpuherd_lab.results_plot import plot_lines, plot_svg
from tpuherd_lab.results_table import draw_constants, draw_results, result_json
from tpuherd_lab.statistics import (
    ResultRow,
    bootstrap_interval,
    find_quantiles,
    quantile,
    summarize_runs,
)

DAY = 86400.0


def make_run(
    seed: int, productive: float, *, policy: str = "tpuherd", traces: str = "t"
) -> PolicyRun:
    return PolicyRun(
        policy=policy, traces=traces, seed=seed, wanted_s=DAY, productive_s=productive * DAY,
        badput={CAPACITY: 0.1 * DAY, SETUP: (0.9 - productive) * DAY},
        losses=(
            Recovery(lost_at=100, detected_at=102, replaced_at=200, first_step_at=260),
            Recovery(lost_at=900, detected_at=904, first_step_at=1900, without_capacity_s=800),
            Recovery(lost_at=5000),
        ),
        billed_s=0.88 * DAY, hedge_waste_s=88, dollars=seed, hops=2, egress_gb=20,
        api_calls={"nodes.create": 10, "nodes.list": 1990}, peak_calls_per_minute=5 + seed,
        peak_nodes=seed, digest=f"d{seed}",
    )  # fmt: skip


BOUNDS = {seed: Bounds(all=0.9, region=0.85, zone=0.8) for seed in (1, 2, 3)}


def make_row(policy: str = "tpuherd", traces: str = "t", best: float = 0.87) -> ResultRow:
    runs = [make_run(seed, best - 0.01 * seed, policy=policy, traces=traces) for seed in (1, 2, 3)]
    return summarize_runs(runs, BOUNDS, "zone")


def test_a_row_has_all_statistics_over_seeds() -> None:
    row = make_row()
    assert row.seeds == 3
    assert (row.bound, row.own_bound) == pytest.approx((0.9, 0.8))
    assert row.goodput.mean == pytest.approx(0.85)
    assert row.ratio.mean == pytest.approx(0.85 / 0.9)
    assert row.own_ratio.mean == pytest.approx(0.85 / 0.8)
    assert 0.84 <= row.goodput.low < 0.85 < row.goodput.high <= 0.86 + 1e-9
    assert row.badput[CAPACITY] == pytest.approx(0.1)
    assert row.controller_badput == pytest.approx(0.05)
    assert row.detect_s and (row.detect_s.p50, row.detect_s.mean) == (3, 3)
    assert row.recovery_s and (row.recovery_s.p50, row.recovery_s.p99) == (180, 200)
    assert row.losses_per_day == 3 and row.hops_per_day == 2 and row.egress_gb_per_day == 20
    assert row.billed_per_productive == pytest.approx(0.88 / 0.85)
    assert row.calls_per_day == {"nodes.create": 10, "nodes.list": 1990}
    assert (row.peak_calls_per_minute, row.peak_nodes, row.dollars_per_day) == (8, 3, 2)
    assert row == make_row(), "replayed"


def test_quantiles_lie_between_their_neighbours() -> None:
    assert [quantile([10, 20, 30], share) for share in (0, 0.25, 0.5, 1)] == [10, 15, 20, 30]
    assert find_quantiles([]) is None
    assert quantile([7], 0.99) == 7


def test_an_interval_is_in_the_values_holds_their_mean_and_shrinks_with_more() -> None:
    few = bootstrap_interval([1, 2, 3])
    assert 1 <= few[0] < 2 < few[1] <= 3
    many = bootstrap_interval([1, 2, 3] * 20)
    assert many[1] - many[0] < (few[1] - few[0]) / 2
    assert bootstrap_interval([5]) == (5, 5) == bootstrap_interval([5, 5])


ROWS = [
    make_row("tpucare", "set-of-nine-zones", 0.5),
    make_row("tpuherd", "set-of-nine-zones"),
    make_row("tpuherd", "other"),
]


@pytest.mark.parametrize("width", [80, 100, 160, 240])
def test_the_table_fits_and_has_the_best_first(width: int) -> None:
    heading, *lines = draw_results(ROWS, width=width, colour=False)
    assert max(map(len, (heading, *lines))) <= width
    assert [line.split()[:2] for line in lines[:1]] == [["set-of-nine-zones", "tpuherd"]]
    assert [line.split()[0] for line in lines[1:]] == ["tpucare", "other"]
    assert "94.4%" in lines[0] and "of bound" in heading
    assert "hung" not in heading, "a column without any value"
    if width == 240:
        for title in ("95 %", "own bound", "avoidable", "detect s", "billed", "/min", "hedges"):
            assert title in heading


def test_constants_are_printed_with_both_values_where_they_differ() -> None:
    lines = [*draw_constants(FAST, NAIVE, width=80)]
    text = " ".join(lines)
    assert max(map(len, lines)) <= 81
    for said in (
        "create a node 40–100 s;", "set up the hosts 30 s (others 240 s);",
        "between crashes never;", "somebody looks every 12 h;", "a start, for the bound 115 s",
    ):  # fmt: skip
        assert said in text


def test_json_has_the_ratio_and_the_bound_of_all_zones() -> None:
    row = json.loads(json.dumps(result_json(ROWS[0])))
    assert (row["policy"], row["traces"]) == ("tpucare", "set-of-nine-zones")
    assert row["ratio"] == pytest.approx(0.48 / 0.9) and row["bound"] == pytest.approx(0.9)
    assert row["recovery_s"]["p50"] == 180 and row["badput"]["host_setup"] > 0


def test_the_picture_has_a_mark_for_each_policy() -> None:
    lines = [*plot_lines(ROWS, width=80, colour=False)]
    assert max(map(len, lines)) <= 80
    bars = {line.split()[0]: line.count("⠶") + line.count("⠾") for line in lines if "⠶" in line}
    assert bars["tpucare"] < bars["tpuherd"]
    odd = [make_row("tpuherd", "a <b> & c")]
    picture = ElementTree.fromstring(plot_svg([*ROWS, *odd]))
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("tpuherd") == 3 and "a <b> & c" in texts and "53.3%" in texts
