"""Writes what a benchmark measured in the format of bench/results."""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.page.results import parse_row

from tpuherd._version import __version__

ROOT = Path(__file__).parents[2]
#: Of the machine, when the benchmark was started: it imports this file first of all.
LOAD_BEFORE = os.getloadavg()[0]


def write_figures(
    path: Path,
    title: str,
    rows: Iterable[Mapping[str, Any]],
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write the rows with the date, the command line, the machine and its load."""
    kept = [{key: one for key, one in row.items() if key != "ratio"} for row in rows]
    for row in kept:
        parse_row(row)  # refuses what the page could not read
    content = {
        "title": title,
        "command": command_line(),
        "measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "load": [round(LOAD_BEFORE, 2), round(os.getloadavg()[0], 2)],
        "machine": describe_machine(),
        "versions": {**own_versions(), **(versions or {})},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, "rows": kept}, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {path}: {len(kept)} rows", file=sys.stderr)


def command_line() -> str:
    """Return the words as typed, without what belongs to this machine."""
    words, left = [f"bench/{Path(sys.argv[0]).name}"], iter(sys.argv[1:])
    for word in left:
        if word == "--json":
            next(left, None)
        elif word == "--peers":
            next(left, None)
            words += ["--peers", "FOLDER"]
        elif not word.startswith("--json="):
            words.append("FOLDER" if word.startswith("/") else word)
    return " ".join(words)


def describe_machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "cores": os.cpu_count() or 0,
        "processor": model[1] if model else platform.machine(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
    }


def own_versions() -> dict[str, str]:
    """Return ours with the last commit that changed the program, and Python's."""
    words = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", "src"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    tpuherd = f"{__version__} ({commit})" if commit else __version__
    return {"tpuherd": tpuherd, "Python": platform.python_version()}


def find_version(*words: str | Path) -> str:
    """Return the first number that looks like a version in what a program says of itself."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except OSError:
        return "?"
    found = re.search(r"\d+\.\d[\w.]*", done.stdout + done.stderr)
    return found[0] if found else "?"


def pair_row(
    figure: str, unit: str, ours: Sequence[float], peer: str, theirs: Sequence[float]
) -> dict[str, Any]:
    """Return a row with a peer, its numbers in the precision that a clock has."""
    return {**own_row(figure, unit, ours), "peer": peer, "theirs": round_all(theirs)}


def own_row(figure: str, unit: str, ours: Sequence[float]) -> dict[str, Any]:
    return {"figure": figure, "unit": unit, "ours": round_all(ours)}


def round_all(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
