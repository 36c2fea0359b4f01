"""Numbers over time as a line of small bars."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, nan

BARS = "▁▂▃▄▅▆▇█"
FLAT = "▄"  #: all values are equal
ODD = "×"  #: not a number, or infinite

SeriesValue = float | None


def sparkline(values: Sequence[SeriesValue], *, base: float | None = None) -> str:
    """Return a bar for each value, a space where there is none.

    The lowest bar is the least value, or `base` if it is less.
    """
    finite = [value for value in values if value is not None and isfinite(value)]
    finite += [] if base is None else [base]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(bar_sign(value, low, high) for value in values)


def bar_sign(value: SeriesValue, low: float, high: float) -> str:
    if value is None:
        return " "
    if not isfinite(value):
        return ODD
    if low == high:
        return FLAT
    share = value / 2 - low / 2, high / 2 - low / 2  # halved: the difference may be too large
    return BARS[min(len(BARS) - 1, int(share[0] / share[1] * len(BARS)))] if share[1] else FLAT


def spread_values(
    points: Sequence[tuple[float, float]],
    start: float,
    end: float,
    width: int,
    *,
    hold_s: float = 0.0,
) -> list[SeriesValue]:
    """Return the mean of the values in each of `width` equal spans of time.

    A span without any takes the value before it, if the next one is at most `hold_s` later.
    """
    cells: list[list[float]] = [[] for _ in range(max(0, width))]
    if end <= start or not cells:
        return [None] * len(cells)
    inside = [
        (at, min(width - 1, int((at - start) / (end - start) * width)), value)
        for at, value in points
        if start <= at <= end
    ]
    for _, cell, value in inside:
        cells[cell].append(value)
    for (at, cell, value), (until, following, _) in pairwise(inside):
        if until - at <= hold_s:
            for empty in range(cell + 1, following):
                cells[empty].append(value)
    return [mean_value(cell) for cell in cells]


def mean_value(values: Sequence[float]) -> SeriesValue:
    if not values:
        return None
    if not all(map(isfinite, values)):
        return nan
    return sum(value / len(values) for value in values)


def spread_rates(
    points: Sequence[tuple[float, float]], start: float, end: float, width: int
) -> list[SeriesValue]:
    """Return how fast a counter grew in each of `width` equal spans of time, per second."""
    step = (end - start) / width if width > 0 and end > start else 0.0
    gains: list[SeriesValue] = [None] * max(0, width)
    known = [0.0] * len(gains)
    for (at, low), (until, high) in pairwise(points):
        if not step or until <= at:
            continue
        rate = (high - low) / (until - at)
        for cell in range(
            max(0, int((at - start) / step)), min(width, int((until - start) / step) + 1)
        ):
            left = start + cell * step
            overlap = min(until, left + step) - max(at, left)
            if overlap > 0:
                gains[cell] = (gains[cell] or 0.0) + rate * overlap
                known[cell] += overlap
    return [None if gain is None else gain / time for gain, time in zip(gains, known, strict=True)]
