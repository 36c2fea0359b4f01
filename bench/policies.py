"""Our engine and other tools on the same capacity: `.venv/bin/python bench/policies.py [FOLDER]`.

Generated capacity (`--generated KIND`), or a folder of traces. `--json FILE` writes the figures.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import write_figures

from tpuherd_lab.compare_policies import (
    OURS,
    OWN,
    SLOW_START,
    PolicyStudy,
    find_policies,
    find_sources,
    run_study,
)
from tpuherd_lab.results_table import draw_results
from tpuherd_lab.statistics import ResultRow

SHIPPED = "tpuherd"


def figure_rows(found: dict[str, list[ResultRow]]) -> list[dict[str, object]]:
    """Return the ratio to the bound of our policy and of each other one, by set."""
    rows: list[dict[str, object]] = []
    for table, results in found.items():
        ours = {row.traces: row for row in results if row.policy == SHIPPED}
        for row in results:
            mine = ours[row.traces]
            if row.policy in OURS:
                continue
            rows.append({
                "figure": f"goodput of the bound, {row.traces}, {table} start", "unit": "share",
                "ours": [mine.ratio.low, mine.ratio.mean, mine.ratio.high],
                "peer": row.policy, "theirs": [row.ratio.low, row.ratio.mean, row.ratio.high],
                "model": True, "more_is_better": True,
                "note": f"{row.seeds} seeds; mean and interval",
            })  # fmt: skip
    return rows


def main() -> None:
    """Compare all policies, and print two tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="*", type=Path)
    parser.add_argument("--generated", action="append", metavar="KIND", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    kinds = asked.generated or (() if asked.folder else ("tpu-churn", "tpu-gang-4"))
    sources = find_sources(asked.folder, kinds)
    study = PolicyStudy(sources=sources, policies=find_policies(()), seeds=asked.seeds)
    found = dict(run_study(study, processes=2))
    for table, title in ((OWN, "own start"), (SLOW_START, "slow start for all")):
        print(f"{title}:", *draw_results(found[table], width=120, colour=False), sep="\n")
    if asked.json:
        write_figures(asked.json, "Goodput", figure_rows(found))


if __name__ == "__main__":
    main()
