"""Random weather for soak tests, reproducible by its seed and fitted to measurements."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.kinds import KINDS, RULE

HOUR = 3600.0
DAY = 24 * HOUR
Drawn = TypeVar("Drawn")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentialShare:
    """One part of a mixture of exponential distributions with a floor."""

    share: float
    mean_h: float
    floor_h: float = 0.0


#: How long capacity lasts. 35 % ends early (mean 15 min); the rest lasts 3 h on average, in two
#: parts because an old machine is safer than a young one (measured: 9 zones, 1895 grants).
LIVES = (
    ExponentialShare(share=0.35, mean_h=0.25, floor_h=0.08),
    ExponentialShare(share=0.40, mean_h=1.0, floor_h=0.2),
    ExponentialShare(share=0.25, mean_h=6.2, floor_h=0.2),
)
#: How long a zone has no capacity (median half an hour, mean 1.8 h).
GAPS = (
    ExponentialShare(share=0.65, mean_h=0.38, floor_h=0.05),
    ExponentialShare(share=0.35, mean_h=3.8, floor_h=0.05),
)
UP_AT_FIRST = 0.54  #: the share of time with capacity
#: Which source of changes a zone follows for a while: its own, its region's, the world's. Zones
#: that follow the same source change together. Switching reduces the correlation a little, so these
#: shares give φ .43 inside a region (a little less than .57² + .40²) and .13 outside.
SOURCES = ((0.03, "zone"), (0.57, "region"), (0.40, "world"))
SHARED_H = 24.0  #: mean time until a zone changes its source
LAG_S = 120.0  #: zones with the same source change within this time
FULL = 0.7  #: how often a zone comes back with all of its machines


@dataclass(frozen=True, kw_only=True, slots=True)
class UniformRange:
    """A uniformly drawn number."""

    low: float
    high: float
    digits: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A kind of weather, its rate per zone, and its arguments."""

    do: str
    per_day: float
    arguments: Mapping[str, Any]
    whole: bool = False  #: all hosts of all nodes of the zone


#: Faults that also affect calls for all zones.
EVERYWHERE = frozenset({"http-error", "lost-response", "delay", "stale-list"})
SOME = UniformRange(low=0.2, high=0.9, digits=2)
MOMENT = UniformRange(low=30, high=300)
WHILE = UniformRange(low=300, high=2400)
SOFT = UniformRange(low=2, high=30)
FAULTS = (
    Fault(do="http-error", per_day=4, arguments={"http": 503, "share": SOME, "for": MOMENT}),
    Fault(do="http-error", per_day=3, arguments={"http": 429, "share": SOME, "for": MOMENT}),
    Fault(do="http-error", per_day=1, arguments={"http": 500, "share": SOME, "for": MOMENT}),
    Fault(do="lost-response", per_day=4,
        arguments={"times": UniformRange(low=1, high=3), "for": HOUR}),
    Fault(do="delay", per_day=2,
        arguments={"seconds": UniformRange(low=2, high=20), "for": MOMENT}),
    Fault(do="stale-list", per_day=3,
        arguments={"age_s": UniformRange(low=20, high=120), "for": MOMENT}),
    Fault(do="unreachable-zone", per_day=2, arguments={"for": MOMENT}),
    Fault(do="conflict", per_day=2, arguments={"times": 1, "for": HOUR}),
    Fault(do="operation-error", per_day=2, arguments={"code": 13, "times": 1, "for": HOUR}),
    Fault(do="slow-operation", per_day=2,
        arguments={"factor": UniformRange(low=3, high=20), "for": WHILE}),
    Fault(do="endless-operation", per_day=2, arguments={"times": 1, "for": HOUR}),
    Fault(do="born-unhealthy", per_day=1, arguments={"times": 1, "for": 6 * HOUR}),
    Fault(do="no-external-ip", per_day=0.5, arguments={"times": 1, "for": 6 * HOUR}),
    Fault(do="unreachable-worker", per_day=1, arguments={"times": 1, "for": 6 * HOUR}),
    Fault(do="stuck-suspending", per_day=1, arguments={"times": 1, "for": 6 * HOUR}),
    Fault(do="late-fill", per_day=1, arguments={"after_s": MOMENT, "times": 1, "for": 6 * HOUR}),
    Fault(do="recycle-ip", per_day=2, arguments={"times": 2, "for": 6 * HOUR}),
    Fault(do="slow-keys", per_day=2,
        arguments={"seconds": UniformRange(low=20, high=180), "for": WHILE}),
    Fault(do="slow-provisioning", per_day=2,
        arguments={"factor": UniformRange(low=2, high=6), "for": WHILE}),
    Fault(do="preempt", per_day=1, arguments={"notice_s": 30.0}),
    Fault(do="preempt", per_day=0.5, arguments={"notice_s": 0.0}),
    Fault(do="maintain", per_day=0.5, arguments={"notice_s": MOMENT, "duration_s": MOMENT}),
    Fault(do="reboot", per_day=0.5, arguments={}),
    Fault(do="crash", per_day=1, arguments={}),
    Fault(do="hang", per_day=0.5, arguments={"for": WHILE}),
    Fault(do="network", per_day=1, arguments={"state": "down", "for": MOMENT}),
    Fault(do="network", per_day=1, arguments={"state": "slow", "for": WHILE}),
    Fault(do="unreachable", per_day=0.5, arguments={"for": WHILE}),
    Fault(do="fill-disk", per_day=0.5, arguments={"for": WHILE}),
    Fault(do="skew", per_day=0.5,
        arguments={"seconds": UniformRange(low=-600, high=600), "for": WHILE}),
    Fault(do="unhealthy", per_day=0.5, arguments={"for": WHILE}),
    Fault(do="reboot", per_day=0.5, arguments={"soft_s": SOFT, "change_ip": True}),
    Fault(do="reboot", per_day=0.3, arguments={"soft_s": SOFT, "change_ip": True}, whole=True),
)  # fmt: skip


def storm_steps(
    seed: int, zones: Sequence[str], hours: float, strength: float = 1.0, *, nodes: int = 16
) -> list[Json]:
    """Return a scenario's steps: changing capacity and faults; at the end everything is normal."""
    end = hours * HOUR
    steps: list[Json] = []
    for zone in zones:
        steps += capacity_steps(seed, zone, end, strength, nodes)
        for number, fault in enumerate(FAULTS):
            steps += fault_steps(
                random_stream(seed, "fault", zone, number), fault, zone, end, strength
            )
    for number, fault in enumerate(FAULTS):
        if fault.do in EVERYWHERE:
            steps += fault_steps(
                random_stream(seed, "fault", "-", number), fault, "-", end, strength
            )
    return sorted(steps, key=lambda step: float(step["at_s"]))


def capacity_steps(seed: int, zone: str, end: float, strength: float, nodes: int) -> Iterator[Json]:
    """Yield the capacity changes of a zone."""
    dice = random_stream(seed, "level", zone)
    at = 0.0
    for start, stop in capacity_spans(seed, zone, end, strength):
        if start > at:
            yield {"at_s": round(at, 1), "do": "drought", "zone": zone}
        level = nodes if dice.random_fraction() < FULL else 1 + int(dice.random_fraction() * nodes)
        yield {"at_s": round(start, 1), "do": "capacity", "zone": zone, "nodes": level}
        at = stop
    if at < end:
        yield {"at_s": round(at, 1), "do": "drought", "zone": zone}
    yield {"at_s": round(end, 1), "do": "capacity", "zone": zone, "nodes": "unlimited"}


def capacity_spans(
    seed: int, zone: str, end: float, strength: float = 1.0
) -> Iterator[tuple[float, float]]:
    """Yield the times with capacity in a zone.

    A zone follows one of three sources and switches to another only while both are down, so that
    each span is as long as its source made it.
    """
    dice = random_stream(seed, "follow", zone)
    sources = {
        "zone": list(up_intervals(random_stream(seed, "zone", zone), end, strength)),
        "region": list(
            up_intervals(random_stream(seed, "region", zone.rpartition("-")[0]), end, strength)
        ),
        "world": list(up_intervals(random_stream(seed, "world"), end, strength)),
    }
    at = -1.0
    while at < end:
        source, lag = sources[draw_weighted(dice, SOURCES)], dice.random_between(0.0, LAG_S)
        change = max(at, 0.0) + draw_lifetime(dice, (ExponentialShare(share=1.0, mean_h=SHARED_H),))
        later = [spell for spell in source if spell[0] > at]
        if not later:
            return
        for start, stop in later:
            begin = start + lag if start > 0.0 else 0.0
            at = stop + LAG_S
            if begin < end:
                yield begin, min(stop + lag, end)
            if at > change:
                break


def up_intervals(dice: Dice, end: float, strength: float) -> Iterator[tuple[float, float]]:
    """Yield alternating up and down times."""
    at = 0.0
    up = dice.random_fraction() < UP_AT_FIRST
    while at < end:
        length = draw_lifetime(dice, LIVES if up else GAPS) / strength
        if up:
            yield at, at + length
        at += length
        up = not up


def draw_lifetime(dice: Dice, blends: Sequence[ExponentialShare]) -> float:
    """Return a random duration in seconds."""
    blend = draw_weighted(dice, [(blend.share, blend) for blend in blends])
    floor = blend.floor_h * HOUR
    return floor - math.log(1.0 - dice.random_fraction()) * (blend.mean_h * HOUR - floor)


def fault_steps(dice: Dice, fault: Fault, zone: str, end: float, strength: float) -> Iterator[Json]:
    """Yield one kind of fault as a Poisson process."""
    at = 0.0
    while True:
        at -= math.log(1.0 - dice.random_fraction()) * DAY / (fault.per_day * strength)
        if at >= end:
            return
        whom: dict[str, object] = {"target": f"{zone}/*"}
        if KINDS[fault.do].family == RULE:
            whom = {"zone": zone}
        elif not fault.whole:
            whom["pick"] = 1
        arguments = {name: draw_value(dice, value) for name, value in fault.arguments.items()}
        yield {"at_s": round(at, 1), "do": fault.do, **whom, **arguments}


def draw_value(dice: Dice, value: object) -> object:
    """Return a value, drawn if it is a range."""
    if not isinstance(value, UniformRange):
        return value
    number = round(dice.random_between(value.low, value.high), value.digits)
    return number if value.digits else int(number)


def draw_weighted(dice: Dice, shares: Sequence[tuple[float, Drawn]]) -> Drawn:
    """Return one of several values by their weights."""
    left = dice.random_fraction()
    for share, value in shares:
        left -= share
        if left < 0.0:
            return value
    return shares[-1][1]


def random_stream(seed: int, *names: object) -> Dice:
    """Return a separate random source for each purpose, so that adding a zone or fault changes no
    other.
    """
    text = ":".join(map(str, (seed, *names)))
    return Dice(seed=int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))
