"""Incidents from other projects and traps of the cloud, in `tests/scenarios/engine`."""

from pathlib import Path

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_scenarios import played
from tests.simulated.engine_world import ZONES
from tests.simulated.scrambled_words import differences, is_scrambling
from tpuherd.model.slots_and_plan import Goal

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios" / "engine").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_known_incidents_end_well(path: Path) -> None:
    found = played(path)
    assert not found, "\n".join([f"{path.name}:", *found])


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_incidents_end_the_same_with_random_words_for_all_sentences(path: Path) -> None:
    found = differences(lambda: played(path, scrambled=is_scrambling()))
    assert not found, "\n".join([f"{path.name}:", *found])


def test_what_hangs_on_a_sentence_is_found() -> None:
    async def plot(play: EngineHarness) -> list[str]:
        play.submit(SimJob(job="gpt", goal=Goal.RUN, zones=ZONES[:1]))
        assert await play.until(lambda: bool(play.events("attempt.ended")), 3600.0)
        if play.events("attempt.ended")[0].facts["why"] == "the run is complete":
            play.down("gpt")
        return await play.close()

    found = differences(lambda: perform(plot))
    assert [line for line in found if line.startswith("with random words other events: ")], found
