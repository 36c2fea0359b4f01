"""Compares ways to keep a job running, on folders of capacity traces.

    .venv/bin/python -m bench.lab --traces FOLDER [--start slow] [--seeds 3] [--json]

One row a policy, window and set: the goodput as a ratio to what one could reach who knew all of
the future. The engine is the real one, in virtual time; other tools are models of their source.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.lab.compare import POLICIES, STARTS, ResultRow, compare_policies
from bench.lab.traces import TraceError, read_trace_folder


def row_text(row: ResultRow) -> str:
    least, most = row.ratio_range
    spent = " ".join(f"{name} {share:.4f}" for name, share in row.badput.items() if share)
    head = f"{row.traces}  {row.policy:16} {row.ratio:.4f} ({least:.4f} to {most:.4f})"
    return f"{head} of {row.bound:.4f}, own {row.own_ratio:.4f}: {spent}"


def main(words: Sequence[str] | None = None) -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(prog="bench.lab", description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", action="append", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--policy", action="append", choices=POLICIES)
    parser.add_argument("--start", choices=STARTS, default="own")
    parser.add_argument("--seeds", type=int, choices=range(1, 101), default=3, metavar="N")
    parser.add_argument("--processes", type=int, choices=range(1, 65), default=2, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    said = parser.parse_args(words)
    try:
        sets = [one for folder in said.traces for one in read_trace_folder(folder)]
    except TraceError as error:
        parser.error(str(error))
    rows = compare_policies(
        sets, said.policy or POLICIES, start=said.start, seeds=said.seeds, processes=said.processes
    )
    if said.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}, indent=2))
    else:
        for row in rows:
            print(row_text(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
