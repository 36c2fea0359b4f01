"""Storms over a lab of two users who share quotas; more of them with `make storm`."""

import pytest

from tests.simulated.lab_storms import stormy_lab


@pytest.mark.parametrize("seed", [3])
def test_after_a_storm_each_user_has_their_own_jobs_and_share(seed: int) -> None:
    found = stormy_lab(seed, hours=0.5)
    assert not found, "\n".join([f"python -m tests.simulated.engine_storm lab {seed} 0.5", *found])
