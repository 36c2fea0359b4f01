"""Lists the checkpoints of a run, or the arrays of one of them.

    python3 -m tpuherd_host.train.show_checkpoints LOCATION [STEP|newest|best] [--json]

It needs NumPy only. LOCATION is a folder or gs://… with step-… folders.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from math import prod

from tpuherd_host.train.checkpoint_commit import Commit, DamagedCheckpoint
from tpuherd_host.train.part_files import numpy_type
from tpuherd_host.train.read_checkpoint import (
    BEST,
    NoCheckpoint,
    best_steps,
    find_commit,
    list_checkpoints,
)

NEWEST = "newest"
USAGE = "usage: python3 -m tpuherd_host.train.show_checkpoints LOCATION [STEP|newest|best] [--json]"
KEY_BYTES = {"key<fry>": 8, "key<rbg>": 16, "key<urbg>": 16}  #: random keys of JAX


def main(words: Sequence[str]) -> int:
    plain = [word for word in words if word != "--json"]
    step = plain[1] if len(plain) == 2 else ""
    known = step in ("", NEWEST, BEST) or step.isdecimal()
    if len(plain) not in (1, 2) or not known or plain[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        if step:
            wanted = int(step) if step.isdecimal() else BEST if step == BEST else None
            commit = find_commit(plain[0], wanted)
            shown: object = asdict(commit)
            text = describe_arrays(commit)
        else:
            every = list_checkpoints(plain[0]) or [find_commit(plain[0])]
            shown = [asdict(one) | {"bytes": total_bytes(one)} for one in every]
            text = describe_checkpoints(every)
    except (NoCheckpoint, DamagedCheckpoint, OSError, OverflowError, RecursionError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    text = json.dumps(shown, indent=2) if "--json" in words else text
    sys.stdout.write("".join(one if one.isprintable() or one == "\n" else "?" for one in text))
    sys.stdout.write("\n")
    return 0


def describe_checkpoints(every: Sequence[Commit]) -> str:
    best, newest = best_steps(every), max(commit.step for commit in every)
    rows = [("step", "saved", "size", "form", "kept as", "metrics")]
    for commit in every:
        marks = {
            NEWEST: commit.step == newest,
            BEST: commit.step in best[:1],
            f"one of the best {len(best)}": commit.step in best[1:],
            "milestone": commit.milestone,
        }
        rows.append((
            str(commit.step),
            format_time(commit.made),
            format_bytes(total_bytes(commit)),
            commit.form,
            ", ".join(mark for mark, true in marks.items() if true) or "-",
            " ".join(f"{name}={value:.6g}" for name, value in commit.metrics.items()) or "-",
        ))  # fmt: skip
    return join_columns(rows, right=(0, 2))


def describe_arrays(commit: Commit) -> str:
    rows = [("array", "type", "shape", "size")]
    for name, shape in commit.leaves.items():
        kind = commit.types.get(name, "")
        size = format_bytes(array_bytes(kind, shape))
        rows.append((name, kind or "?", str(tuple(shape)), size))
    numbers = sum(prod(shape) for shape in commit.leaves.values())
    head = [f"step {commit.step}", f"run {commit.run}", f"attempt {commit.attempt}"]
    head += [f"saved {format_time(commit.made)} on {commit.pod}", f"form {commit.form}"]
    size = format_bytes(total_bytes(commit))
    end = f"{numbers:,} numbers in {len(commit.leaves)} arrays, {size}"
    return "\n".join([", ".join(head), join_columns(rows, right=(3,)), end])


def array_bytes(kind: str, shape: Iterable[int]) -> int | None:
    """Return how many bytes an array takes, or None if its type is unknown here."""
    try:
        each = KEY_BYTES.get(kind) or int(numpy_type(kind).itemsize)
    except (TypeError, ValueError, AttributeError, SyntaxError):
        return None
    return prod(shape) * each


def total_bytes(commit: Commit) -> int | None:
    sizes = [array_bytes(commit.types.get(name, ""), it) for name, it in commit.leaves.items()]
    return None if None in sizes or not commit.types else sum(size or 0 for size in sizes)


def format_bytes(size: int | None) -> str:
    if size is None:
        return "?"
    units = ("B", "kB", "MB", "GB", "TB")
    value, at = float(size), 0
    while value >= 1000 and at + 1 < len(units):
        value, at = value / 1000, at + 1
    return f"{value:.0f} {units[at]}" if not at else f"{value:.3g} {units[at]}"


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def join_columns(rows: Sequence[tuple[str, ...]], right: Sequence[int]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(wide) if at in right else cell.ljust(wide)
            for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
