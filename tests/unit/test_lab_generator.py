"""Generated capacity: replayed by its seed, and of the shape that its kind says."""

from statistics import fmean

import pytest

from tpuherd_lab.bounds import find_bounds
from tpuherd_lab.capacity import set_capacities
from tpuherd_lab.generator import GENERATED, generate_set


@pytest.mark.parametrize("name", GENERATED)
def test_a_kind_has_its_zones_gang_ticks_and_days(name: str) -> None:
    kind, made = GENERATED[name], generate_set(name, 1)
    assert made == generate_set(name, 1) != generate_set(name, 2)
    assert made.gang == kind.gang == max(max(zone.nodes) for zone in made.zones)
    assert len({zone.region for zone in made.zones}) == kind.regions
    assert {zone.tick_s for zone in made.zones} == {kind.tick_s}
    assert made.length_s == pytest.approx(kind.days * 86400, abs=kind.tick_s)
    ups = [zone.up_before(made.length_s) / made.length_s for zone in set_capacities(made, 1)]
    assert min(ups) > 0.3 and max(ups) < 0.95


def test_churn_has_many_short_lives_and_the_bounds_of_the_set_after_which_it_is_made() -> None:
    made = generate_set("tpu-churn", 1)
    lives = [end - start for zone in set_capacities(made, 1) for start, end in zone.up]
    assert 0.25 < sum(life < 1800 for life in lives) / len(lives) < 0.5
    assert 1.6 * 3600 < fmean(lives) < 2.4 * 3600
    bounds = find_bounds(made, 1)
    assert (bounds.all, bounds.region, bounds.zone) == pytest.approx(
        (0.9939, 0.9446, 0.7835), abs=0.02
    )
