"""Our engine and other tools on the same capacity: `.venv/bin/python bench/policies.py [FOLDER]`.

Generated capacity (`--generated KIND`), or a folder of traces. `--json FILE` writes the figures.
`--sweep CONSTANT…` varies constants of our policy instead.
"""

import argparse
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, write_figures

from tpuherd_lab.compare_policies import (
    OURS,
    OWN,
    SLOW_START,
    PolicyStudy,
    SetSource,
    find_policies,
    find_sources,
    run_study,
)
from tpuherd_lab.policy_sweep import find_factors, sweep_factor, sweep_lines
from tpuherd_lab.results_table import draw_results
from tpuherd_lab.statistics import ResultRow

SHIPPED = "tpuherd"


def figure_rows(
    found: Mapping[str, Sequence[ResultRow]], names: Mapping[str, str]
) -> list[dict[str, object]]:
    """Return the ratio to the bound of our policy and of each other one, by set."""
    rows: list[dict[str, object]] = []
    for table, results in found.items():
        ours = {row.traces: row for row in results if row.policy == SHIPPED}
        for row in results:
            figure = f"goodput of the bound, {names[row.traces]}, {table} start"
            more = {"more_is_better": True, "note": f"{row.seeds} seeds; mean and interval"}
            if row.policy not in OURS:
                peer = {"peer": row.policy, "theirs": spread_of_ratio(row), "model": True}
                mine = spread_of_ratio(ours[row.traces])
                rows.append({"figure": figure, "unit": "share", "ours": mine, **peer, **more})
            elif row.policy != SHIPPED:
                own = own_row(f"{figure}, {row.policy}", "share", spread_of_ratio(row))
                rows.append({**own, **more})
    return rows


def spread_of_ratio(row: ResultRow) -> list[float]:
    return [round(one, 5) for one in (row.ratio.low, row.ratio.mean, row.ratio.high)]


def display_name(source: SetSource) -> str:
    """Return a name that says what the set is, also where its folder's name would not."""
    if source.folder is None:
        return source.name
    traces = source.load_set(1)
    gang = f", gangs of {traces.gang}" if traces.gang > 1 else ""
    return f"measured spot traces of {len(traces.zones)} zones{gang}"


def sweep_rows(
    names: Sequence[str], sources: Sequence[SetSource], seeds: int
) -> Iterator[dict[str, object]]:
    """Print and yield the goodput with each value of these constants."""
    for source in sources:
        for name in find_factors(names):
            rows = sweep_factor(name, source, seeds)
            print(*sweep_lines(rows), sep="\n")
            for row in rows:
                value = "none" if row.value is None else f"{row.value:g}"
                shipped = " (as shipped)" if row.shipped else ""
                figure = f"goodput, {display_name(source)}, {name} {value}{shipped}"
                note = f"mean of {seeds} seeds"
                yield {"figure": figure, "unit": "share", "ours": [round(row.goodput, 5)],
                       "more_is_better": True, "note": note}  # fmt: skip


def used_cpu_s() -> float:
    """Return the CPU time of this process and of those that it waited for."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def main() -> None:
    """Compare all policies, and print two tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="*", type=Path)
    parser.add_argument("--generated", action="append", metavar="KIND", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sweep", action="append", metavar="CONSTANT", default=[])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    kinds = asked.generated or (() if asked.folder else ("tpu-churn", "tpu-gang-4"))
    sources = find_sources(asked.folder, kinds)
    if asked.sweep:
        swept = [*sweep_rows(asked.sweep, sources, asked.seeds)]
        if asked.json:
            write_figures(asked.json, "One constant at a time", swept)
        return
    study = PolicyStudy(sources=sources, policies=find_policies(()), seeds=asked.seeds)
    found = run_study(study, processes=asked.processes)
    for table, title in ((OWN, "own start"), (SLOW_START, "slow start for all")):
        print(f"{title}:", *draw_results(found[table], width=120, colour=False), sep="\n")
    if asked.json:
        names = {source.name: display_name(source) for source in sources}
        cpu = own_row("CPU time of all policies, both tables", "s", [used_cpu_s()])
        write_figures(asked.json, "Goodput", [*figure_rows(found, names), cpu])


if __name__ == "__main__":
    main()
