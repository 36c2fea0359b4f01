"""The text of `herd cost` without a job."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpuherd.views.format_text import NOTHING, format_money, format_table

Json = Mapping[str, Any]
BAR = 30  #: characters of the dearest day
JOBS = ("JOB", "PER HOUR", "TODAY", "TOTAL", "LIMIT", "LIMIT REACHED")


def cost_text(
    page: Json,
    *,
    show_time: Callable[[float], str] = str,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """`herd cost`"""
    if not page["jobs"]:
        return "No job has cost anything yet. Start one with `herd run`."
    rows = [JOBS, *(job_cells(row, show_time) for row in page["jobs"])]
    parts = [
        "\n".join(heading_lines(page)),
        format_table(rows, right=(1, 2, 3, 4), colour=colour, width=width),
        "\n".join(day_lines(page["days"], known=page["price_known"])),
    ]
    return "\n\n".join(part for part in parts if part)


def heading_lines(page: Json) -> Iterator[str]:
    known, forecast = page["price_known"], page["forecast"]
    yield (
        f"now {format_money(page['per_hour'], known=known)} per hour,"
        f" today {format_money(page['today'], known=known)} so far,"
        f" {format_money(page['total'], known=known)} in all"
    )
    yield (
        f"at this rate {format_money(forecast['day'], known=known)} by the end of the day,"
        f" {format_money(forecast['month'], known=known)} by the end of the month"
    )
    if any(row["limit_at"] is not None and row["per_hour"] for row in page["jobs"]):
        yield "Jobs with a limit (`max_cost`) end when they reach it."
    if not page["price_known"]:
        yield "The price of some node is unknown: what has a + costs more than shown."


def job_cells(row: Json, show_time: Callable[[float], str]) -> tuple[str, ...]:
    known = row["price_known"]
    limit = row["max_cost"]
    return (
        row["job"] + (" (removed)" if row["removed"] else ""),
        format_money(row["per_hour"], known=known) if row["per_hour"] or not known else NOTHING,
        format_money(row["today"], known=known),
        format_money(row["total"], known=known),
        NOTHING if limit is None else format_money(limit),
        NOTHING if row["limit_at"] is None else show_time(row["limit_at"]),
    )


def day_lines(days: Sequence[Json], *, known: bool) -> Iterator[str]:
    """A bar for each day, from the first that cost something."""
    first = next((at for at, day in enumerate(days) if day["cost"]), len(days))
    shown = days[first:]
    most = max((day["cost"] for day in shown), default=0.0)
    money = [format_money(day["cost"]) for day in shown]
    wide = max(map(len, money), default=0)
    for day, text in zip(shown, money, strict=True):
        bar = "█" * round(BAR * day["cost"] / most) if most else ""
        yield f"{day['date']}  {text.rjust(wide)}{'' if known else '+'}  {bar}".rstrip()
