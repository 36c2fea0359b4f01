"""Storms over jobs: weather, kills, cuts and second thoughts by chance; all by `make storm`."""

import pytest

from tests.simulated.engine_storm import again
from tests.simulated.engine_storms import stormy

SEEDS = range(1, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_passes_and_all_is_as_it_was_wished(seed: int) -> None:
    found = stormy(seed)
    assert not found, "\n".join([again(("storm", (str(seed),))), *found])
