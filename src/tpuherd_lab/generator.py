"""Capacity of TPUs as it may be, from a seed: what no public trace has.

The shapes are those of measured traces of other accelerators (lives and gaps are mixtures, an old
node is safer than a young one) with the churn that was seen on TPUs: many nodes that live for a
quarter of an hour.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tpuherd_lab.capacity import Capacity, Interval
from tpuherd_lab.traces import Trace, TraceSet
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import GAPS, LIVES, ExponentialShare, draw_lifetime, random_stream

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, kw_only=True, slots=True)
class ChurnKind:
    """How capacity comes and goes in a set."""

    about: str
    regions: int
    zones_each: int
    days: float
    tick_s: float
    gang: int
    lives: tuple[ExponentialShare, ...]
    gaps: tuple[ExponentialShare, ...]
    region_up_h: float = 0.0  #: mean time between outages of a whole region; 0: there are none
    region_down_h: float = 0.0


def mix(*parts: tuple[float, float]) -> tuple[ExponentialShare, ...]:
    """Return a mixture from shares and mean hours."""
    return tuple(ExponentialShare(share=share, mean_h=mean_h) for share, mean_h in parts)


#: 35 % end early, after a quarter of an hour on average, the others after three hours.
TPU_LIVES = mix((0.35, 0.25), (0.65, 3.0))

GENERATED: Mapping[str, ChurnKind] = {
    "tpu-churn": ChurnKind(
        about="TPU-like churn: 6 zones, 35 % of the nodes live for 15 minutes",
        regions=3, zones_each=2, days=30, tick_s=60, gang=1,
        lives=TPU_LIVES, gaps=mix((0.7, 0.25), (0.3, 1.15)),
    ),
    "tpu-gang-4": ChurnKind(
        about="gangs of 4 in 3 regions, long gaps, ticks of 5 minutes",
        regions=3, zones_each=1, days=30, tick_s=300, gang=4,
        lives=mix((0.55, 0.9), (0.45, 6.7)), gaps=mix((0.6, 0.35), (0.4, 5.85)),
    ),
    "tpu-ticks-32s": ChurnKind(
        about="4 zones whose regions fail as a whole, ticks of 32 s",
        regions=2, zones_each=2, days=7.4, tick_s=32, gang=1,
        lives=mix((0.4, 0.35), (0.6, 4.65)), gaps=mix((0.8, 0.25), (0.2, 1.2)),
        region_up_h=20, region_down_h=2,
    ),
    "tpu-ticks-10min": ChurnKind(
        about="6 zones, lives and gaps as measured in 9 zones, ticks of 10 minutes",
        regions=3, zones_each=2, days=27, tick_s=600, gang=1, lives=LIVES, gaps=GAPS,
    ),
    "tpu-gang-4-short": ChurnKind(
        about="gangs of 4 that live for 90 minutes on average",
        regions=2, zones_each=2, days=14, tick_s=60, gang=4,
        lives=mix((0.45, 0.3), (0.55, 2.5)), gaps=mix((0.7, 0.3), (0.3, 1.5)),
        region_up_h=30, region_down_h=1,
    ),
}  # fmt: skip


def generate_set(name: str, seed: int) -> TraceSet:
    """Return a set of a kind in GENERATED; the same for the same seed."""
    kind = GENERATED[name]
    zones = []
    for number in range(kind.regions):
        region = f"region{number + 1}"
        outages = region_outages(kind, random_stream(seed, name, region))
        for letter in "abcdefgh"[: kind.zones_each]:
            zone = f"{region}-{letter}"
            dice = random_stream(seed, name, zone)
            own = Capacity(zone, tuple(up_times(kind, dice)))
            nodes = tuple(tick_levels(kind, dice, own, outages))
            zones.append(Trace(zone=zone, region=region, tick_s=kind.tick_s, nodes=nodes))
    return TraceSet(name=name, zones=tuple(zones), gang=kind.gang)


def up_times(kind: ChurnKind, dice: Dice) -> Iterator[Interval]:
    """Yield when a zone has capacity, were it alone."""
    at = 0.0 if dice.random_fraction() < 0.5 else draw_lifetime(dice, kind.gaps)
    while at < kind.days * DAY:
        end = at + draw_lifetime(dice, kind.lives)
        yield at, end
        at = end + draw_lifetime(dice, kind.gaps)


def region_outages(kind: ChurnKind, dice: Dice) -> Capacity:
    """Return when a whole region has nothing."""
    down: list[Interval] = []
    at = 0.0
    while kind.region_up_h and at < kind.days * DAY:
        start = at + draw_lifetime(dice, mix((1.0, kind.region_up_h)))
        at = start + draw_lifetime(dice, mix((1.0, kind.region_down_h)))
        down.append((start, at))
    return Capacity("outages", tuple(down))


def tick_levels(kind: ChurnKind, dice: Dice, own: Capacity, outages: Capacity) -> Iterator[int]:
    """Yield the nodes at each tick: a gang, or fewer."""
    up = bytearray(int(kind.days * DAY / kind.tick_s))
    for intervals, value in ((own.up, 1), (outages.up, 0)):
        for start, end in intervals:
            first, last = (math.ceil(at / kind.tick_s) for at in (start, end))
            for tick in range(first, min(last, len(up))):
                up[tick] = value
    for there in up:
        if there or kind.gang == 1:
            yield there * kind.gang
        else:
            yield int(dice.random_fraction() * kind.gang)
