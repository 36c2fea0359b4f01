"""The omniscient bound: equal to a search of all plans, and to what was published for two sets."""

import os
import random
from functools import cache
from pathlib import Path

import pytest

from tpuherd_lab.bounds import find_bounds, most_productive_s, upper_bound
from tpuherd_lab.capacity import Capacity
from tpuherd_lab.traces import Trace, TraceSet, read_trace_folder

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("HERD_TRACES", ROOT.parent / "shared" / "traces"))
STEP = 20


def search_all_plans(zones: list[Capacity], boot: int, length: int) -> int:
    """Try every zone in every step; a start is productive after `boot` steps."""

    @cache
    def best(step: int, zone: int, started: int) -> int:
        if step == length:
            return 0
        most = best(step + 1, -1, 0)
        for other, capacity in enumerate(zones):
            until = capacity.up_until(step * STEP)
            if until is not None and until >= (step + 1) * STEP:
                age = started + 1 if other == zone else 1
                most = max(most, (age > boot) + best(step + 1, other, min(age, boot + 1)))
        return most

    return best(0, -1, 0) * STEP


@pytest.mark.parametrize("seed", range(25))
def test_the_bound_is_what_a_search_of_all_plans_finds(seed: int) -> None:
    chance = random.Random(seed)
    zones = []
    for name in "abc":
        cuts = sorted(chance.sample(range(31), 6))
        up = tuple((a * STEP, b * STEP) for a, b in zip(cuts[::2], cuts[1::2], strict=True))
        zones.append(Capacity(name, up, "r"))
    boot = chance.randint(0, 3)
    assert most_productive_s(zones, boot * STEP) == search_all_plans(zones, boot, 30)


def test_scopes_are_means_over_regions_and_zones() -> None:
    def trace(zone: str, region: str, *nodes: int) -> Trace:
        return Trace(zone=zone, region=region, tick_s=1200, nodes=nodes)

    traces = TraceSet(
        name="t",
        zones=(
            trace("a", "r", 1, 0, 0, 0), trace("b", "r", 0, 1, 0, 0), trace("c", "q", 0, 0, 1, 1)
        ),
    )  # fmt: skip
    bounds = find_bounds(traces, None, boot_s=120)
    assert bounds.zone == (1080 + 1080 + 2280) / 3 / 4800
    assert bounds.region == (2160 + 2280) / 2 / 4800
    assert bounds.all == (1080 + 1080 + 2280) / 4800


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs a folder of measured traces: HERD_TRACES")
@pytest.mark.parametrize(
    ("folder", "everywhere", "region", "zone"),
    [
        ("aws-9-zones-1-node", 0.9900, 0.8187, 0.6363),
        ("aws-3-zones-16-nodes", 0.7532, 0.4096, 0.3636),
    ],
)
def test_the_bounds_of_measured_traces(
    folder: str, everywhere: float, region: float, zone: float
) -> None:
    (traces,) = read_trace_folder(TRACES / folder)
    seeds = (1, 2, 3)
    for scope, published in (("all", everywhere), ("region", region), ("zone", zone)):
        mean = sum(upper_bound(traces, seed, scope) for seed in seeds) / len(seeds)
        assert mean == pytest.approx(published, abs=0.002)
