"""The text of `herd notify list` and `herd notify test`."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuherd.model.receivers import Topic
from tpuherd.views.format_text import NOTHING, format_span, format_table

HEAD = ("RECEIVER", "ABOUT", "ON", "SENT", "WAITING", "PROBLEM")
EMPTY = "No receivers. Write `notify:` in a job file, or use `herd notify set`."


def receivers_text(
    rows: Sequence[Mapping[str, Any]],
    *,
    now: float,
    colour: bool = False,
    width: int | None = None,
) -> str:
    if not rows:
        return EMPTY
    cells = [
        (
            row["receiver"],
            about_words(row),
            "all" if len(row["on"]) == len(Topic) else ", ".join(row["on"]),
            str(row["sent"]),
            str(row["waiting"]) if row["waiting"] else NOTHING,
            problem_words(row, now),
        )
        for row in rows
    ]
    return format_table([HEAD, *cells], right=(3, 4), colour=colour, width=width)


def about_words(row: Mapping[str, Any]) -> str:
    """The jobs that name it themselves, and all others if it is a default."""
    jobs = list(row["jobs"])
    if row["default"]:
        jobs.append("all other jobs" if jobs else "all jobs")
    return ", ".join(jobs)


def problem_words(row: Mapping[str, Any], now: float) -> str:
    if not row["problem"]:
        return NOTHING
    since = row["failing_since"]
    return f"{row['problem']}, for {format_span(now - since)}" if since else str(row["problem"])


def tests_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each receiver: what came back."""
    return "\n".join(
        f"{row['receiver']}: accepted in {format_span(row['seconds'])}"
        if row["accepted"]
        else f"{row['receiver']}: {row['problem']}"
        for row in rows
    )
