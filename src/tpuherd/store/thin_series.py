"""Thins series to a number of points, each with the lowest, mean and highest value. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite, isnan
from operator import gt

from tpuherd.model.samples import SeriesPoint
from tpuherd.store.sample_codec import drop_missing

Numbers = Sequence[float]


@dataclass(kw_only=True, slots=True)
class TimeTable:
    """Rows of several columns with one time each; a column is its lowest, mean and highest list.

    Columns that join later have None for the rows before.
    """

    times: list[float] = field(default_factory=list)
    columns: dict[str, list[list[float | None]]] = field(default_factory=dict)

    def add_rows(
        self, times: Sequence[float], columns: Mapping[str, Sequence[Sequence[float | None]]]
    ) -> None:
        """Add rows; a column of one list has no spans, until rows with spans join it."""
        for name in columns.keys() - self.columns.keys():
            self.columns[name] = [[None] * len(self.times)]
        for name, lists in self.columns.items():
            added = columns.get(name) or [[None] * len(times)]
            if len(added) > len(lists):
                lists += [lists[0].copy(), lists[0].copy()]
            for place, known in enumerate(lists):
                known += added[place if len(added) > 1 else 0]
        self.times += times

    def drop_rows(self, after: float) -> None:
        """Drop the rows after this time."""
        self.sort_rows()
        end = bisect_right(self.times, after)
        del self.times[end:]
        for lists in self.columns.values():
            for values in lists:
                del values[end:]

    def sort_rows(self) -> None:
        """Bring the rows into the order of their times: a clock may have been set back."""
        times = self.times
        if not any(map(gt, times, islice(times, 1, None))):
            return
        order = sorted(range(len(times)), key=times.__getitem__)
        self.times = [times[row] for row in order]
        self.columns = {
            name: [[values[row] for row in order] for values in lists]
            for name, lists in self.columns.items()
        }


def thin_table(
    table: TimeTable, *, since: float, until: float, points: int
) -> dict[str, tuple[SeriesPoint, ...]]:
    """Return each column as at most so many points."""
    table.sort_rows()
    found = {}
    shared = cut_times(table.times, since=since, until=until, points=points)
    for name, lists in table.columns.items():
        numbers: list[Numbers]
        if None in lists[0]:
            times = drop_missing(table.times, lists[0])[0]
            cuts = cut_times(times, since=since, until=until, points=points)
            numbers = [drop_missing(table.times, values)[1] for values in lists]
        else:
            cuts, numbers = shared, lists  # type: ignore[assignment]
        found[name] = join_spans(cuts, numbers[0], numbers[len(numbers) // 2], numbers[-1])
    return found


def cut_times(
    times: Numbers, *, since: float, until: float, points: int
) -> list[tuple[float, int, int]]:
    """Cut sorted times into spans of equal length: the mean time, first row and row behind it."""
    first, last = bisect_left(times, since), bisect_right(times, until)
    if last - first <= points:
        return [(times[row], row, row + 1) for row in range(first, last)]
    begin, width = times[first], (times[last - 1] - times[first]) / points
    cuts = []
    row = first
    for span in range(1, points + 1):
        end = last if span == points else bisect_left(times, begin + span * width, row, last)
        if end > row:
            cuts.append((sum(times[row:end]) / (end - row), row, end))
            row = end
    return cuts


def join_spans(
    cuts: Sequence[tuple[float, int, int]], lows: Numbers, means: Numbers, highs: Numbers
) -> tuple[SeriesPoint, ...]:
    """Return one point for each span."""
    if cuts and min(lows) == max(highs) and isfinite(sum(means)):
        only = lows[0]
        return tuple(SeriesPoint(at, only, only, only) for at, _, _ in cuts)
    middle = [sum(means[row:end]) / (end - row) for _, row, end in cuts]
    if not isfinite(sum(middle)):
        spans = ((at, lows[row:end], means[row:end], highs[row:end]) for at, row, end in cuts)
        return tuple(join_rows(*span) for span in spans)
    low = [min(lows[row:end]) for _, row, end in cuts]
    high = [max(highs[row:end]) for _, row, end in cuts]
    times = [at for at, _, _ in cuts]
    return tuple(map(SeriesPoint._make, zip(times, low, middle, high, strict=True)))


def join_rows(at: float, lows: Numbers, means: Numbers, highs: Numbers) -> SeriesPoint:
    """Return one point for rows with values that are no numbers, or very large."""
    lows, highs = without_nan(lows), without_nan(highs)
    return SeriesPoint(at, min(lows), careful_mean(means), max(highs))


def careful_mean(values: Numbers) -> float:
    """Return the mean of values that are no numbers, or too large for their sum."""
    return sum(value / len(values) for value in values)


def without_nan(values: Numbers) -> Numbers:
    return [value for value in values if not isnan(value)] or values[:1]
