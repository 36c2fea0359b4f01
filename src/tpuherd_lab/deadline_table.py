"""The comparison of policies with a deadline as text, and as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tpuherd_lab.deadline_runs import DeadlineTask
from tpuherd_lab.deadline_study import WORK_H, DeadlineRow

HEADS = ("POLICY", "DOLLARS", "±", "OF OPTIMUM", "MISSED", "ON-DEMAND", "STARTS")
WIDTHS = (20, 9, 7, 11, 7, 10, 7)


def deadline_text(rows: Sequence[DeadlineRow]) -> str:
    """Return one table for each deadline, length of a start and choice of zones."""
    task = DeadlineTask()
    head = (
        f"{WORK_H:g} h of work, ${task.spot_price:g} an hour on spot and ${task.firm_price:g} on"
        " on-demand.\nMeans over windows with 95 % confidence. The optimum knows the future.\n"
        "There is no spot beyond the end of a window."
    )
    tables = groupby(rows, key=lambda row: (row.scope, row.deadline_h, row.start_h))
    return "\n\n".join([head, *("\n".join(table_lines(list(group))) for _, group in tables)])


def table_lines(rows: Sequence[DeadlineRow]) -> Iterator[str]:
    first = rows[0]
    yield (
        f"{first.scope}, done by {first.deadline_h:g} h, {first.start_h * 60:g} min a start,"
        f" {first.windows} windows"
    )
    yield join_cells(HEADS)
    for row in rows:
        yield join_cells((
            row.policy, f"{row.dollars:.2f}", f"{row.plus_minus:.2f}", f"{row.ratio:.3f}",
            str(row.missed), f"{row.firm_h:.1f} h", f"{row.starts:.1f}",
        ))  # fmt: skip


def join_cells(cells: Sequence[str]) -> str:
    first, *others = zip(cells, WIDTHS, strict=True)
    return first[0].ljust(first[1]) + "".join(text.rjust(width) for text, width in others)


def deadline_rows(rows: Iterable[DeadlineRow]) -> list[dict[str, Any]]:
    """Return the rows for JSON."""
    return [asdict(row) for row in rows]
