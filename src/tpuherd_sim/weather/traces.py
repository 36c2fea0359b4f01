"""Converts measured capacity over time into steps of a scenario."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.weather.storm import random_stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The number of available nodes of a type in a zone at each tick."""

    zone: str
    type: str
    gap_s: float
    levels: tuple[int, ...]
    start_s: float = 0.0  #: when it starts in the scenario
    offset_s: float = 0.0  #: how much of its beginning to skip


def parse_trace(text: str) -> tuple[float, tuple[int, ...]]:
    """Return the gap and the levels of a trace file; raise ValueError with a sentence
    if malformed.
    """
    try:
        content = json.loads(text)
        gap, levels = content["metadata"]["gap_seconds"], content["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            'it must be JSON such as {"metadata": {"gap_seconds": 300}, "data": [4, 0]}'
        ) from error
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap < 1e9:
        raise ValueError("its metadata.gap_seconds must be a number above 0")
    if not isinstance(levels, list) or not levels:
        raise ValueError("its data must be a list of whole numbers from 0 on")
    for index, level in enumerate(levels):
        if isinstance(level, bool) or not isinstance(level, int) or level < 0:
            raise ValueError(f"data[{index}] must be a whole number of at least 0, not {level!r}")
    return float(gap), tuple(levels)


def trace_steps(trace: Trace, seed: int) -> Iterator[Json]:
    """Yield every change, at a random time between the ticks before and after it."""
    dice = random_stream(seed, "trace", trace.zone, trace.type)
    begin = int(trace.offset_s / trace.gap_s)
    last = -1
    for number, level in enumerate(trace.levels[begin:]):
        early = dice.random_fraction() if number else 0.0
        if level == last:
            continue
        last = level
        at = trace.start_s + (number - early) * trace.gap_s
        yield {
            "at_s": round(at, 1),
            "do": "capacity",
            "zone": trace.zone,
            "type": trace.type,
            "nodes": level,
        }
