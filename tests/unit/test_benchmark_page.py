"""The page of benchmarks: what it says of results, and of missing ones; plots from values alone."""

import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from typing import Any

import pytest
from bench.page.chart import Dot, DotPanel, LinePanel, Series, draw_chart, short_number
from bench.page.document import quote_lines, write_page
from bench.page.plots import draw_plots
from bench.page.results import BenchmarkRun, Spread, parse_run
from bench.run import choose_pieces, main

SVG = "{http://www.w3.org/2000/svg}"


def run_of(name: str, *rows: dict[str, Any]) -> BenchmarkRun:
    machine = {"cores": 2, "processor": "p", "memory_gb": 8.0, "system": "Linux"}
    return parse_run(name, {
        "title": "t", "command": f"bench/{name}.py", "measured": "2026-01-02 03:04 UTC",
        "load": [0.5, 9.25], "machine": machine, "versions": {"ssh": "9.2"}, "rows": rows,
    })  # fmt: skip


def warm(at: int, ours: float, theirs: float) -> dict[str, Any]:
    return {"figure": "exec, warm", "unit": "s", "at": at, "ours": [ours], "peer": "clush",
            "theirs": [theirs]}  # fmt: skip


def test_a_run_has_its_date_load_versions_and_ratios() -> None:
    page = write_page([run_of("exec", warm(8, 0.1, 0.5))], set())
    assert "`bench/exec.py`, 2026-01-02 03:04 UTC, load 0.5 to 9.2. ssh 9.2." in page
    assert (
        "| figure (hosts) |" in page and "| exec, warm (8) | 0.1 s | clush 0.5 s: **0.2** |" in page
    )


def test_what_was_not_measured_is_said() -> None:
    page = write_page([], set())
    assert "*Not measured: `bench/recovery.py --modes off,on`.*" in page
    assert "*Not measured: `bench/recovery.py" not in write_page(
        [run_of("recovery", {"figure": "f", "unit": "s", "ours": [1]})], set()
    )


def test_a_model_is_called_one() -> None:
    row = {"figure": "goodput", "unit": "share", "ours": [0.9], "peer": "skypilot",
           "theirs": [0.6], "model": True, "more_is_better": True}  # fmt: skip
    page = write_page([run_of("policies.tpu-churn", row)], set())
    assert "| skypilot (a model) 0.6 share: **1.5** |" in page
    assert "**more is better**" in page


def test_a_figure_without_a_result_is_not_quoted() -> None:
    assert len(list(quote_lines([]))) == 1
    assert "| 0.11 s | clush 0.5 |" in "".join(quote_lines([run_of("exec", warm(64, 0.11, 0.22))]))


def test_one_size_is_no_plot() -> None:
    assert draw_plots([run_of("exec", warm(8, 1, 2))]) == {}
    assert set(draw_plots([run_of("exec", warm(8, 1, 2), warm(64, 2, 9))])) == {"fan-out"}


def test_names_of_lines_cover_no_other() -> None:
    one = Spread(least=1.0, middle=1.0, most=1.0)
    lines = tuple(
        Series(name=f"<{number}>", points=((1.0, one), (2.0, one)), colour=number)
        for number in range(6)
    )
    panel = LinePanel(title="a & b", unit="s", across="hosts", lines=lines)
    tree = ElementTree.fromstring(draw_chart([panel], 'a "chart"'))
    names = [e for e in tree.iter(f"{SVG}text") if (e.text or "").startswith("<")]
    heights = sorted(float(e.attrib["y"]) for e in names)
    assert len(heights) == 6
    assert all(below - above >= 13 for above, below in pairwise(heights))


def test_dots_stay_in_the_picture_and_zero_is_on_the_axis() -> None:
    value = Spread(least=-2.0, middle=0.0, most=5.0)
    panel = DotPanel(title="t", unit="s", dots=(Dot(name="on", value=value, is_ours=True),))
    tree = ElementTree.fromstring(draw_chart([panel], "t"))
    wide = float(tree.attrib["width"])
    assert all(0 < float(e.attrib["cx"]) < wide for e in tree.iter(f"{SVG}circle"))
    assert "0" in [e.text for e in tree.iter(f"{SVG}text")]


def test_numbers_have_three_digits() -> None:
    values = (0, 0.0123456, 1.0, 12.345, 1234.5, 2.5e7)
    assert [short_number(one) for one in values] == [
        "0", "0.0123", "1", "12.3", "1,234", "2.5e+07",
    ]  # fmt: skip


def test_benchmarks_are_chosen_by_their_name_or_that_of_a_result() -> None:
    assert {piece.result for _, piece in choose_pieces(["sync.8", "plan"])} == {"sync.8", "plan"}
    assert len(list(choose_pieces(["sync"]))) == 3
    assert len(list(choose_pieces([]))) > 15


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exek"]) == 2
    assert "no benchmark 'exek'; there are: engine" in capsys.readouterr().err
