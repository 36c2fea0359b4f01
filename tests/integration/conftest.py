"""What many files begin with; a file may have a fixture of its own of the same name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import World, started
from tests.integration.agents import Agents, agents, little_room
from tests.integration.engines import Owner, owner
from tests.integration.running_hosts import WALLED, need


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    """A user with an empty world, the same for all tests of a file."""
    with owner() as found:
        yield found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A quick world without hosts."""
    with started("--hosts", "none", "--time-scale", "600") as found:
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Agents]:
    """A home on a host, and its agents."""
    with agents(tmp_path) as made:
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Agents]:
    """The same on a small disk."""
    with little_room(tmp_path), agents(tmp_path) as made:
        yield made


@pytest.fixture(params=WALLED)
def mode(request: pytest.FixtureRequest) -> str:
    """Each kind of hosts that have walls between them."""
    kind = str(request.param)
    need(kind)
    return kind
