"""One world without hosts for all tests of the API."""

from collections.abc import Iterator

import pytest

from tests.conformance.world import World, started


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with started("--hosts", "none", "--time-scale", "600") as world:
        yield world


@pytest.fixture(autouse=True)
def tidy(world: World) -> Iterator[None]:
    """Every test finds an empty world and leaves one."""
    yield
    world.clear()
