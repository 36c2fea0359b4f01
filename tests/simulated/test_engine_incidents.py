"""Incidents from other projects and traps of the cloud, in `tests/scenarios/engine`."""

from pathlib import Path

import pytest

from tests.simulated.engine_scenarios import played

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios" / "engine").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_known_incidents_end_well(path: Path) -> None:
    found = played(path)
    assert not found, "\n".join([f"{path.name}:", *found])
