"""The storm has the statistics of measured spot capacity, and is reproducible from its seed."""

from itertools import combinations, pairwise
from math import sqrt
from statistics import fmean, median

import pytest

from tpuherd_sim.weather import arguments
from tpuherd_sim.weather.kinds import KINDS
from tpuherd_sim.weather.storm import FAULTS, HOUR, LIVES, capacity_spans, storm_steps

ZONES = ("us-central1-a", "us-central1-b", "us-east5-a", "us-east5-b", "europe-west4-a")
HOURS = 30 * 24
SEEDS = range(12)
Spells = list[tuple[float, float]]


@pytest.fixture(scope="module")
def seasons() -> dict[tuple[int, str], Spells]:
    return {
        (seed, zone): list(capacity_spans(seed, zone, HOURS * HOUR))
        for seed in SEEDS
        for zone in ZONES
    }


@pytest.fixture(scope="module")
def lives(seasons: dict[tuple[int, str], Spells]) -> list[float]:
    """Hours, those that the end of the storm cut off left out."""
    return [
        (stop - start) / HOUR
        for spell in seasons.values()
        for start, stop in spell
        if stop < HOURS * HOUR
    ]


def survival(lives: list[float], hours: float) -> float:
    return sum(life > hours for life in lives) / len(lives)


def test_a_third_of_the_nodes_dies_early_and_the_rest_lives_three_hours() -> None:
    early, *rest = LIVES
    assert (early.share, early.mean_h) == (0.35, 0.25)
    share = sum(blend.share for blend in rest)
    assert share == pytest.approx(0.65)
    assert sum(blend.share * blend.mean_h for blend in rest) / share == pytest.approx(3.0, abs=0.02)


def test_lifetimes_match_the_measured_data(lives: list[float]) -> None:
    assert fmean(lives) == pytest.approx(0.35 * 0.25 + 0.65 * 3.0, abs=0.15)
    assert median(lives) == pytest.approx(0.56, abs=0.06)
    measured = {1 / 6: 0.88, 0.5: 0.55, 1.0: 0.37, 6.0: 0.11, 24.0: 0.02}
    for hours, share in measured.items():
        assert survival(lives, hours) == pytest.approx(share, abs=0.03), hours


def test_old_capacity_is_safer_than_young(lives: list[float]) -> None:
    measured = {0: 0.37, 1: 0.66, 3: 0.82, 6: 0.89}
    found = {age: survival(lives, age + 1) / survival(lives, age) for age in measured}
    assert found == pytest.approx(measured, abs=0.06)
    assert list(found.values()) == sorted(found.values())


def test_gaps_match_the_measured_data(seasons: dict[tuple[int, str], Spells]) -> None:
    gaps = [
        (start - stop) / HOUR
        for spell in seasons.values()
        for (_, stop), (start, _) in pairwise(spell)
    ]
    assert median(gaps) == pytest.approx(0.51, abs=0.06)
    assert fmean(gaps) == pytest.approx(1.79, abs=0.2)


def test_zones_of_a_region_change_together(seasons: dict[tuple[int, str], Spells]) -> None:
    up = {key: sampled(spell) for key, spell in seasons.items()}
    pairs = list(combinations(ZONES, 2))
    near = [pair for pair in pairs if pair[0][:-1] == pair[1][:-1]]
    far = [pair for pair in pairs if pair not in near]
    assert correlation(up, near) == pytest.approx(0.43, abs=0.06)
    assert correlation(up, far) == pytest.approx(0.13, abs=0.06)


def sampled(spell: Spells) -> list[bool]:
    """Whether there is capacity, every quarter of an hour."""
    left = iter([*spell, (float("inf"), float("inf"))])
    start, stop = next(left)
    row = []
    for quarter in range(HOURS * 4):
        while stop <= quarter * 900:
            start, stop = next(left)
        row.append(start <= quarter * 900)
    return row


def correlation(up: dict[tuple[int, str], list[bool]], pairs: list[tuple[str, str]]) -> float:
    """φ of two zones over all seeds."""
    both = first = second = count = 0
    for seed in SEEDS:
        for one, other in pairs:
            a, b = up[seed, one], up[seed, other]
            count += len(a)
            first += sum(a)
            second += sum(b)
            both += sum(map(bool.__and__, a, b))
    p, q, r = first / count, second / count, both / count
    return (r - p * q) / sqrt(p * (1 - p) * q * (1 - q))


def test_the_same_seed_is_the_same_storm_and_another_is_not() -> None:
    assert storm_steps(5, ZONES, 12) == storm_steps(5, ZONES, 12)
    assert storm_steps(5, ZONES, 12) != storm_steps(6, ZONES, 12)


def test_another_zone_changes_nothing_elsewhere() -> None:
    few, more = storm_steps(5, ZONES[:2], 12), storm_steps(5, ZONES, 12)
    assert few == [step for step in more if whom(step) in (*ZONES[:2], "-")]


def whom(step: dict[str, object]) -> str:
    return str(step.get("zone") or str(step["target"]).partition("/")[0])


def test_every_step_of_a_storm_is_possible_and_every_fault_occurs() -> None:
    steps = storm_steps(1, ZONES, 24 * 7)
    for step in steps:
        said = {name: step[name] for name in step if name not in ("at_s", "do")}
        arguments.fill_arguments(arguments.find_kind(step["do"]), said)
    assert {fault.do for fault in FAULTS} <= {step["do"] for step in steps}
    calm = {"clear", "quota", "healthy", "unhang", "reachable", "free-disk"}
    assert {fault.do for fault in FAULTS} | calm | {"capacity", "drought"} == set(KINDS)


def test_a_stronger_storm_has_more_of_everything() -> None:
    assert len(storm_steps(1, ZONES, 48, 3.0)) > 2 * len(storm_steps(1, ZONES, 48))


def test_after_the_storm_there_is_capacity_everywhere() -> None:
    last: dict[str, object] = {}
    for step in storm_steps(2, ZONES, 6):
        if step["do"] in ("capacity", "drought"):
            last[step["zone"]] = step.get("nodes", 0)
    assert last == dict.fromkeys(ZONES, "unlimited")
