"""Storms over jobs: random weather, kills, cuts and changes; all of them with `make storm`."""

import pytest

from tests.simulated.engine_storm import again
from tests.simulated.engine_storms import stormy

SEEDS = (3, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_storm_all_jobs_are_as_submitted(seed: int) -> None:
    found = stormy(seed)
    assert not found, "\n".join([again(("storm", (str(seed),))), *found])
