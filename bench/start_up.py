"""What `herd --help` and reading commands cost, compared with bare Python and other tools.

    .venv/bin/python bench/start_up.py [--times 15]

Medians of alternating runs, so that other load affects all alike.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import find_version, pair_row, write_figures

BARE = "bare python"


def seconds(argv: list[str], home: str) -> float:
    """By somebody without jobs, in a world that need not be there."""
    environ = {**os.environ, "HOME": home, "HERD_WORLD": home}
    quiet = subprocess.DEVNULL
    began = time.perf_counter()
    subprocess.run(argv, stdout=quiet, stderr=quiet, env=environ, check=False)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        taken = compare(asked.times, home)
    if asked.json:
        peers = [name for name in taken if not name.startswith("herd")]
        rows = [
            pair_row(name, "s", times, peer, taken[peer])
            for name, times in taken.items() if name.startswith("herd")
            for peer in peers if peer == BARE or name == "herd --help"
        ]  # fmt: skip
        programs = [one.partition(" ")[0] for one in peers if one != BARE]
        versions = {one: find_version(one, "--version") for one in programs}
        write_figures(asked.json, "The start of a command", rows, versions)
    return 0


def compare(times: int, home: str) -> dict[str, list[float]]:
    """Print a line each, and return the seconds of all."""
    herd = str(Path(sys.executable).with_name("herd"))
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        "herd --help": [herd, "--help"],
        "herd --version": [herd, "--version"],
        "herd sim --help": [herd, "sim", "--help"],
        "herd sim status": [herd, "sim", "status", "--json"],
        "herd ls": [herd, "ls"],
    }
    for peer in ("gcloud", "kubectl"):
        if found := shutil.which(peer):
            commands[f"{peer} --help"] = [found, "--help"]
    for argv in commands.values():
        seconds(argv, home)  # once for the caches of the system
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(times):
        for name, argv in commands.items():
            taken[name].append(seconds(argv, home))
    bare = statistics.median(taken[BARE])
    for name, values in taken.items():
        median = statistics.median(values)
        print(f"{name:<16} {median * 1000:6.0f} ms  {median / bare:5.1f} x bare python")
    return taken


if __name__ == "__main__":
    sys.exit(main())
