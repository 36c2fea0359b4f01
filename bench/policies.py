"""Our engine and other tools on the same capacity: `.venv/bin/python bench/policies.py FOLDER`.

FOLDER has capacity traces. `--json FILE` writes the figures. `python -m bench.lab` shows more.
"""

import argparse
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.lab.compare import OURS, POLICIES, STARTS, ResultRow, compare_policies
from bench.lab.traces import TraceSet, read_trace_folder
from bench.rigs.figures import own_row, write_figures

SHIPPED = "tpuherd"


def figure_rows(rows: Sequence[ResultRow], name: str) -> list[dict[str, object]]:
    """Return the ratio to the bound of our policy and of each other one, on one set."""
    found: list[dict[str, object]] = []
    ours = next(row for row in rows if row.policy == SHIPPED)
    for row in rows:
        figure = f"goodput of the bound, {name}, {row.start} start"
        more = {"more_is_better": True, "note": f"{row.seeds} seeds; least, mean and most"}
        if row.policy not in OURS:
            peer = {"peer": row.policy, "theirs": spread_of_ratio(row), "model": True}
            mine = spread_of_ratio(ours)
            found.append({"figure": figure, "unit": "share", "ours": mine, **peer, **more})
        elif row.policy != SHIPPED:
            own = own_row(f"{figure}, {row.policy}", "share", spread_of_ratio(row))
            found.append({**own, **more})
    return found


def spread_of_ratio(row: ResultRow) -> list[float]:
    return [round(one, 5) for one in (row.ratio_range[0], row.ratio, row.ratio_range[1])]


def display_name(traces: TraceSet) -> str:
    """Return a name that says what the set is, also where its folder's name would not."""
    gang = f", gangs of {traces.gang}" if traces.gang > 1 else ""
    return f"measured spot traces of {len(traces.zones)} zones{gang}"


def used_cpu_s() -> float:
    """Return the CPU time of this process and of those that it waited for."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def main() -> None:
    """Compare all policies with both starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    figures: list[dict[str, object]] = []
    for traces in (one for folder in asked.folder for one in read_trace_folder(folder)):
        for start in STARTS:
            rows = [
                *compare_policies(
                    [traces], POLICIES, start=start, seeds=asked.seeds, processes=asked.processes
                )
            ]
            figures += figure_rows(rows, display_name(traces))
            print(f"{traces.name}, {start} start:")
            print(*(f"  {row.policy:16} {row.ratio:.4f}" for row in rows), sep="\n")
    if asked.json:
        cpu = own_row("CPU time of all policies, both tables", "s", [used_cpu_s()])
        write_figures(asked.json, "Goodput", [*figures, cpu])


if __name__ == "__main__":
    main()
