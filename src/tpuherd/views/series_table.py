"""Series as a table, as CSV, and as plain values for JSON."""

import csv
import io
from collections.abc import Sequence
from math import isfinite
from typing import Any

from tpuherd.model.samples import Series
from tpuherd.views.format_text import format_bytes, format_table
from tpuherd.views.printable import show_controls
from tpuherd.views.sparkline import sparkline, spread_values

BARS = 24
HEADING = ("OF", "CHIP", "NAME", "LAST", "LOWEST", "MEAN", "HIGHEST", "OVER TIME")
CSV_HEADING = ("time", "slot", "host", "chip", "name", "low", "mean", "high")
PERCENT = ("cpu", "duty")
RATES = ("net_in", "net_out")
BYTES = ("hbm_used", "hbm_total", "ram_used", "ram_total", "disk_free", "disk_total")


def series_rows(found: Sequence[Series]) -> list[dict[str, Any]]:
    """Return plain values; what is no number is null."""
    return [
        {
            "job": series.name.job,
            "slot": series.name.slot,
            "host": series.name.host,
            "chip": series.name.chip,
            "name": series.name.name,
            "points": [
                [value if isfinite(value) else None for value in point] for point in series.points
            ],
        }
        for series in found
    ]


def series_csv(found: Sequence[Series]) -> str:
    """Return a line for each point."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_HEADING)
    for series in found:
        name = series.name
        title = [name.slot, name.host, "" if name.chip is None else name.chip]
        for point in series.points:
            values = (point.low, point.mean, point.high)
            writer.writerow([round(point.at, 3), *title, show_controls(name.name), *values])
    return file.getvalue()


def series_text(found: Sequence[Series], *, colour: bool, width: int | None) -> str:
    """Return a table of what each series was, with a curve."""
    rows = [HEADING, *(table_row(series) for series in found)]
    if all(series.name.chip is None for series in found):
        rows = [(row[0], *row[2:]) for row in rows]
    right = [at for at, title in enumerate(rows[0]) if title in HEADING[3:7]]
    return format_table(rows, right=right, colour=colour, width=width)


def table_row(series: Series) -> tuple[str, ...]:
    name, points = series.name, series.points
    values = [(point.at, point.mean) for point in points]
    hold_s = 2 * (points[-1].at - points[0].at) / BARS
    curve = spread_values(values, points[0].at, points[-1].at, BARS, hold_s=hold_s)
    numbers = (
        points[-1].mean,
        min(point.low for point in points),
        sum(point.mean for point in points) / len(points),
        max(point.high for point in points),
    )
    return (
        name.host or name.slot,
        "-" if name.chip is None else str(name.chip),
        show_controls(name.name),
        *(format_value(name.name if name.host else "", one) for one in numbers),
        sparkline(curve).rstrip() if len(points) > 1 else "-",
    )


def format_value(name: str, value: float) -> str:
    """Return a value with its unit, if it is a host's or a chip's."""
    if name in PERCENT:
        return f"{value:.1f} %"
    if name in RATES:
        return f"{format_bytes(round(value))}/s"
    return format_bytes(round(value)) if name in BYTES else f"{value:.5g}"
