"""The most that anyone could reach who knew all of the future: what ratios are ratios of.

One slice, in one zone at a time. It starts and leaves at multiples of STEP_S; a start costs
`boot_s`, whatever it is for; a checkpoint is taken at the moment of each loss and costs nothing.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.lab.capacity import Capacity, set_capacities
from bench.lab.constants import Constants
from bench.lab.traces import TraceSet

#: Which zones the omniscient may use; for one zone or one region, the mean over all of them.
SCOPES = ("all", "region", "zone")
BOOT_S = Constants().boot_s
#: The omniscient acts at multiples of it.
STEP_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Shares of the wanted time."""

    all: float
    region: float
    zone: float


def upper_bound(
    traces: TraceSet, seed: int | None, scope: str = "all", *, boot_s: float = BOOT_S
) -> float:
    """Return the greatest share of the time that can be productive; without a seed, no jitter."""
    capacities = set_capacities(traces, seed)
    return fmean(
        most_productive_s(zones, boot_s) / traces.length_s
        for zones in zone_groups(capacities, scope)
    )


def find_bounds(traces: TraceSet, seed: int | None, *, boot_s: float = BOOT_S) -> Bounds:
    values = {scope: upper_bound(traces, seed, scope, boot_s=boot_s) for scope in SCOPES}
    return Bounds(all=values["all"], region=values["region"], zone=values["zone"])


def zone_groups(capacities: Sequence[Capacity], scope: str) -> list[list[Capacity]]:
    """Return the zones between which a job may move, once for each place it may be in."""
    if scope == "all":
        return [list(capacities)]
    groups: dict[str, list[Capacity]] = {}
    for capacity in capacities:
        key = capacity.zone if scope == "zone" else capacity.region
        groups.setdefault(key, []).append(capacity)
    return list(groups.values())


def most_productive_s(zones: Iterable[Capacity], boot_s: float, step_s: float = STEP_S) -> float:
    """Return the longest productive time.

    It never pays to leave a zone before its capacity ends: who leaves later, works as long here
    as there. So a plan is a row of intervals, each used from its start, or from the end of the
    one before, to its end. `best` is the most by the end of each interval, in the order of ends.
    """
    boot = math.ceil(boot_s / step_s) * step_s
    ends: list[float] = []
    best: list[float] = []
    for end, start in sorted(usable_times(zones, step_s)):
        most = best[-1] if best else 0.0
        before = bisect_right(ends, start)
        most = max(most, (best[before - 1] if before else 0.0) + end - start - boot)
        for index in range(bisect_left(ends, start), len(ends)):  # they end inside this one
            most = max(most, best[index] + end - ends[index] - boot)
        ends.append(end)
        best.append(most)
    return best[-1] if best else 0.0


def usable_times(zones: Iterable[Capacity], step_s: float) -> Iterable[tuple[float, float]]:
    """Yield the last and the first step of each interval."""
    for zone in zones:
        for start, end in zone.up:
            first, last = math.ceil(start / step_s) * step_s, end // step_s * step_s
            if first < last:
                yield last, first
