"""What a benchmark measured, in the one format of bench/results: values, checked as they are read.

A file is one run: `NAME.json`, or `NAME.PART.json` if a benchmark is run in pieces. NAME is the
benchmark's file, bench/NAME.py. bench/README.md shows an example.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

FOLDER = Path(__file__).parents[1] / "results"


class BadResult(Exception):
    """A file of results that does not say what it must."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The least, the middle and the greatest of some values."""

    least: float
    middle: float
    most: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureRow:
    """One thing that was measured, once or several times, and beside it a peer if there is one."""

    figure: str
    unit: str
    ours: tuple[float, ...]
    at: float | None = None  #: where figures of one name differ: hosts, nodes, days
    peer: str = ""
    theirs: tuple[float, ...] = ()
    model: bool = False  #: the peer did not run: a model of it did
    more_is_better: bool = False
    note: str = ""

    def ratio(self) -> Spread | None:
        """Return ours divided by theirs: by pairs where both took turns, else by their median."""
        if not self.theirs:
            return None
        if len(self.ours) == len(self.theirs):
            pairs = zip(self.ours, self.theirs, strict=True)
        else:
            pairs = zip(self.ours, [median(self.theirs)] * len(self.ours), strict=True)
        found = [mine / theirs for mine, theirs in pairs if theirs]
        if not found or not median(self.theirs):
            return None
        middle = median(self.ours) / median(self.theirs)
        return Spread(least=min(*found, middle), middle=middle, most=max(*found, middle))


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkRun:
    """One run of a benchmark: when, how, where, and all that it measured."""

    name: str  #: of the file, without .json
    title: str
    command: str
    measured: str  #: as "2026-11-23 20:41 UTC"
    load: tuple[float, ...]  #: the machine's load average over a minute, before and after
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]
    rows: tuple[FigureRow, ...]

    @property
    def benchmark(self) -> str:
        return self.name.partition(".")[0]


def spread_of(values: tuple[float, ...]) -> Spread:
    return Spread(least=min(values), middle=median(values), most=max(values))


def parse_numbers(row: Mapping[str, Any], key: str) -> tuple[float, ...]:
    found = row.get(key) or []
    if not isinstance(found, list | tuple):
        raise BadResult(f"{key} is not a list: {found!r}")
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one):
            raise BadResult(f"{key} has something that is not a finite number: {one!r}")
    return tuple(float(one) for one in found)


def parse_row(row: Mapping[str, Any]) -> FigureRow:
    """Read one row. `ratio` may stand there, but is computed from the values."""
    known = {one.name for one in fields(FigureRow)} | {"ratio"}
    if strange := sorted(set(row) - known):
        raise BadResult(f"unknown key {strange[0]!r}; a row has {', '.join(sorted(known))}")
    ours, theirs, at = parse_numbers(row, "ours"), parse_numbers(row, "theirs"), row.get("at")
    words = {key: row.get(key) or "" for key in ("figure", "unit", "peer", "note")}
    if not all(isinstance(word, str) for word in words.values()):
        raise BadResult(f"figure, unit, peer and note are text: {words!r}")
    if not words["figure"] or not ours:
        raise BadResult(f"a row needs `figure` and at least one number in `ours`: {dict(row)!r}")
    if bool(words["peer"]) != bool(theirs):
        raise BadResult(f"{words['figure']}: `peer` and `theirs` belong together")
    return FigureRow(
        ours=ours, theirs=theirs, at=None if at is None else float(at), **words,
        model=bool(row.get("model")), more_is_better=bool(row.get("more_is_better")),
    )  # fmt: skip


def parse_run(name: str, content: Mapping[str, Any]) -> BenchmarkRun:
    for key in ("title", "command", "measured", "load", "machine", "versions", "rows"):
        if key not in content:
            raise BadResult(f"no {key!r}; bench/rigs/figures.py writes it")
    return BenchmarkRun(
        name=name, title=str(content["title"]), command=str(content["command"]),
        measured=str(content["measured"]), load=parse_numbers(content, "load"),
        machine=dict(content["machine"]), versions=dict(content["versions"]),
        rows=tuple(map(parse_row, content["rows"])),
    )  # fmt: skip


def read_runs(folder: Path = FOLDER) -> list[BenchmarkRun]:
    """Read all results, by name."""
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            found.append(parse_run(file.stem, json.loads(file.read_text())))
        except (ValueError, TypeError, KeyError, BadResult) as error:
            raise BadResult(f"{file.name}: {error}") from error
    return found
