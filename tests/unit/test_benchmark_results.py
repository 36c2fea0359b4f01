"""Results of benchmarks: what a row may say, and the ratio that follows from it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.page.results import BadResult, Spread, parse_row, read_runs
from bench.rigs.figures import write_figures

ROW: dict[str, Any] = {"figure": "exec, warm", "unit": "s", "ours": [1.0]}


def test_a_ratio_is_taken_by_pairs_where_both_sides_took_turns() -> None:
    row = parse_row({**ROW, "ours": [1, 2, 3], "peer": "ssh", "theirs": [2, 2, 12], "ratio": [9]})
    assert row.ratio() == Spread(least=0.25, middle=1.0, most=1.0)


def test_a_ratio_of_unequal_numbers_of_rounds_is_to_their_median() -> None:
    row = parse_row({**ROW, "ours": [1, 2, 3], "peer": "ssh", "theirs": [4]})
    assert row.ratio() == Spread(least=0.25, middle=0.5, most=0.75)


def test_no_ratio_without_a_peer_or_to_nothing() -> None:
    assert parse_row(ROW).ratio() is None
    assert parse_row({**ROW, "peer": "ssh", "theirs": [0.0]}).ratio() is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ours": []}, "at least one number"),
        ({"ours": [float("nan")]}, "not a finite number"),
        ({"ours": [True]}, "not a finite number"),
        ({"ours": 3.0}, "not a list"),
        ({"peer": "ssh"}, "belong together"),
        ({"theirs": [1.0]}, "belong together"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"unit": 7}, "are text"),
    ],
)
def test_a_row_that_a_reader_could_not_use_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadResult, match=said):
        parse_row({**ROW, **change})


def test_what_is_written_is_read_again_without_paths_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["/a/b/bench/exec.py", "--hosts", "8", "--peers", "/x/bin", "--json", "/y/exec.8.json"]
    monkeypatch.setattr(sys, "argv", words)
    write_figures(tmp_path / "exec.8.json", "Commands", [{**ROW, "at": 8}], {"clush": "1.9"})
    (found,) = read_runs(tmp_path)
    assert (found.benchmark, found.name, found.title) == ("exec", "exec.8", "Commands")
    assert found.command == "bench/exec.py --hosts 8 --peers FOLDER"
    assert found.versions["clush"] == "1.9"
    assert len(found.load) == 2
    assert (found.rows[0].at, found.rows[0].ours) == (8.0, (1.0,))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "exec.json").write_text("{")
    with pytest.raises(BadResult, match=r"^exec\.json: "):
        read_runs(tmp_path)
    (tmp_path / "exec.json").write_text(json.dumps({"title": "Commands"}))
    with pytest.raises(BadResult, match=r"exec\.json: no 'command'"):
        read_runs(tmp_path)
