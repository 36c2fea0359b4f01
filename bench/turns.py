"""Runs benchmarks of an earlier commit and of HEAD in turns, and compares the medians.

    .venv/bin/python bench/turns.py COMMIT [--rounds 3] start_up "exec --hosts 8,64 --rounds 3" …

Each benchmark is a name, or a name and its words in quotes; figures that only one side has are left
out. Below 1 is less than before. The programs of both run with the libraries of this environment.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.conformance.earlier_commit import install_commit

ROOT = Path(__file__).parents[1]
Figures = dict[tuple[str, str], list[float]]  #: by figure and unit, of all rounds of one side


def build_commit(commit: str, folder: Path) -> Path:
    """Install a commit in the folder, with the clients that benchmarks run."""
    if install_commit(commit, folder) is None:
        raise SystemExit(f"this clone has no commit {commit}")
    if (ROOT / ".venv-clients").exists():
        (folder / "tree" / ".venv-clients").symlink_to(ROOT / ".venv-clients")
    return folder


def run_benchmark(folder: Path, words: Sequence[str]) -> Figures:
    """Run one benchmark of a commit, and return what it measured of herd."""
    name, *rest = words
    with tempfile.TemporaryDirectory() as results:
        file = Path(results, "figures.json")
        words = ("bin/python", f"tree/bench/{name}.py", *rest, "--json", str(file))
        if code := subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(f"bench/{name}.py of {folder.name} failed with status {code}")
        rows = json.loads(file.read_text())["rows"]
    found: Figures = {}
    for row in rows:  # beside several peers, a figure has as many rows with the same values of ours
        figure = f"{row['figure']} ({row['at']})" if "at" in row else row["figure"]
        found[figure, row["unit"]] = row["ours"]
    return found


def compare(before: Figures, now: Figures) -> Iterator[str]:
    """Yield a line for each figure of both sides."""
    for key in before.keys() & now.keys():
        figure, unit = key
        old, new = median(before[key]), median(now[key])
        ratio = f"{new / old:.3f}" if old else "-"
        yield f"{ratio:>8}  {old:>10.4g} -> {new:<10.4g} {unit:8} {figure}  n={len(now[key])}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = [build_commit(one, Path(folder, one)) for one in (asked.commit, "HEAD")]
        for words in map(shlex.split, asked.benchmarks):
            kept: tuple[Figures, Figures] = ({}, {})
            for turn in range(asked.rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    for key, values in run_benchmark(sides[side], words).items():
                        kept[side].setdefault(key, []).extend(values)
            print(shlex.join(words), *sorted(compare(*kept)), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
