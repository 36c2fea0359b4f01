"""When a zone has capacity for the job: the intervals of a trace, its changes jittered."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from bench.lab.traces import Trace, TraceSet

from tpuherd_sim.weather.storm import random_stream

Interval = tuple[float, float]
#: Times are multiples of this power of two, so that sums of them are exact.
GRAIN_S = 1 / 64


def round_time(seconds: float) -> float:
    """Return the nearest time whose sums with others of its kind are exact."""
    return round(seconds / GRAIN_S) * GRAIN_S


@dataclass(frozen=True, slots=True)
class Capacity:
    """When a zone, or any zone of several, has capacity: sorted intervals that do not touch."""

    zone: str
    up: tuple[Interval, ...]
    region: str = ""
    starts: tuple[float, ...] = field(init=False, repr=False, compare=False)
    sums: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sums = [0.0]
        for start, end in self.up:
            sums.append(sums[-1] + end - start)
        object.__setattr__(self, "starts", tuple(start for start, _ in self.up))
        object.__setattr__(self, "sums", tuple(sums))

    def has(self, at: float) -> bool:
        return self.up_until(at) is not None

    def up_until(self, at: float) -> float | None:
        """Return when the capacity of this moment ends; None: there is none."""
        index = bisect_right(self.starts, at) - 1
        if index >= 0 and at < self.up[index][1]:
            return self.up[index][1]
        return None

    def next_up(self, at: float) -> float | None:
        """Return the first moment from `at` on with capacity; None: never again."""
        if self.has(at):
            return at
        index = bisect_right(self.starts, at)
        return self.starts[index] if index < len(self.starts) else None

    def up_between(self, start: float, end: float) -> float:
        """Return for how long there is capacity in this time."""
        return self.up_before(end) - self.up_before(start) if end > start else 0.0

    def up_before(self, at: float) -> float:
        index = bisect_right(self.starts, at) - 1
        if index < 0:
            return 0.0
        start, end = self.up[index]
        return self.sums[index] + min(at, end) - start


def set_capacities(traces: TraceSet, seed: int | None) -> tuple[Capacity, ...]:
    """Return when each zone of a set has capacity for the job."""
    return tuple(
        zone_capacity(trace, seed, gang=traces.gang, length_s=traces.length_s)
        for trace in traces.zones
    )


def zone_capacity(trace: Trace, seed: int | None, *, gang: int, length_s: float) -> Capacity:
    """Return when a zone has the whole gang; each change is at a random time before its tick.

    Without a seed a change is at its tick.
    """
    dice = random_stream(seed, "capacity", trace.zone) if seed is not None else None
    up: list[Interval] = []
    tick, at = 0, 0.0
    for enough, run in groupby(level >= gang for level in trace.nodes):
        tick += sum(1 for _ in run)
        early = dice.random_fraction() if dice else 0.0
        end = round_time((tick - early) * trace.tick_s)
        if tick == len(trace.nodes):
            end = round_time(trace.length_s)
        if enough and min(end, length_s) > at:
            up.append((at, min(end, length_s)))
        at = end
    return Capacity(trace.zone, tuple(up), trace.region)


def join_capacities(capacities: Sequence[Capacity], name: str = "any") -> Capacity:
    """Return when any of these zones has capacity."""
    return Capacity(name, tuple(join_intervals(one for zone in capacities for one in zone.up)))


def join_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
