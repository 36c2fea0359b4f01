"""Maps by the real engine in a world in virtual time: each item succeeds exactly once, though
nodes are taken and engines killed.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulated.engine_faults import lose_store
from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_programs import Crash, Script
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.sweep_trials import Sweep
from tpuherd_sim.model.world_parts import Dice

STEPS = 4
#: Commands of items neither report steps nor save.
SCRIPT = Script(
    steps=STEPS, step_s=5.0, save_every=100, reports=False, says_complete=False, on_term="die"
)
ITEMS = tuple(f"data/{number}.bin" for number in range(9))
MAP = SimJob(copies=2, items=ITEMS, limits={"failures": 0})


def map_of(play: EngineHarness) -> Sweep:
    return play.folded_history().sweeps.get("gpt", Sweep())


def ends(play: EngineHarness) -> list[HistoryEvent]:
    return play.events("trial.ended")


async def ended(play: EngineHarness, patience_s: float = 4 * 3600.0) -> Sweep:
    """The map comes to its end, and every law was kept on the way."""
    assert await play.until(lambda: map_of(play).is_over, patience_s), (
        map_of(play),
        play.unmet_jobs(),
    )
    await play.advance(120.0)
    assert not play.verdict()
    assert len(play.events("map.ended")) == 1
    return map_of(play)


def succeeded_once(play: EngineHarness) -> None:
    """Every item has exactly one success, of an attempt that came to its own end."""
    won = [one for one in ends(play) if one.facts["outcome"] == "complete"]
    assert sorted(one.facts["trial"] for one in won) == list(range(len(ITEMS)))
    gangs = play.sim.fleet.gangs
    assert all(gangs[one.facts["attempt"]].completed for one in won)
    texts = {
        number: event.facts["params"]["item"]
        for event in play.events("trial.created")
        if (number := event.facts["trial"]) is not None
    }
    assert texts == dict(enumerate(ITEMS))
    runs = Counter(
        event.facts["verdict"]
        for event in play.events("attempt.ended")
        if event.facts["verdict"] == "success"
    )
    assert runs["success"] == len(ITEMS)


def test_items_flow_over_two_nodes_which_go_at_the_end() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(MAP)
        sweep = await ended(play)
        succeeded_once(play)
        assert (sweep.complete, sweep.failed, sweep.worst) == (len(ITEMS), (), 0)
        assert sweep.trials == ()  # what has ended is in the log only
        assert not play.sim.remains()
        assert len({event.facts["bid"] for event in play.events("attempt.launched")}) == 2
        free, taken = ends(play)[:-2], play.events("trial.assigned")[2:]
        assert max(b.at - a.at for a, b in zip(free, taken, strict=True)) < 1.0

    perform(plot, scripts={"*": SCRIPT})


#: Seeds whose losses interrupt an item: with a notice of 30 s most items end in time.
SEEDS = (0, 1, 2, 3, 4, 6, 7, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_die_and_engines_are_killed(seed: int) -> None:
    async def plot(play: EngineHarness) -> None:
        dice = Dice(seed=seed)
        play.submit(replace(MAP, copies=2 + seed % 2))
        for _ in range(6):
            await play.advance(dice.random_between(15.0, 90.0))
            if dice.random_fraction() < 0.5:
                play.kill()
            if play.sim.nodes():
                slot = f"gpt-{int(dice.random_fraction() * 2)}"
                play.sim.weather("preempt", target=f"{slot}-*", notice_s=30 * (seed % 2))
        await ended(play)
        succeeded_once(play)
        again = [one.facts for one in play.events("trial.assigned") if one.facts["resumed"]]
        assert again, "no item was interrupted: the plot shows nothing"
        assert not any(one["outcome"] == "failed" for one in (e.facts for e in ends(play)))

    perform(plot, scripts={"*": SCRIPT}, haste=2.0)


def test_nodes_of_herd_up_stay_and_take_another_map() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, goal=Goal.IDLE))
        assert await play.until(lambda: len(play.events("slot.prepared")) == 2, 3600.0)
        assert await play.until(lambda: len(play.events("bid.ready")) == 2, 3600.0)
        nodes = play.sim.nodes()
        kept = replace(MAP, goal=Goal.IDLE, keep=True)
        play.submit(kept)
        await ended(play)
        succeeded_once(play)
        assert play.sim.nodes() == nodes
        assert not play.events("slot.done")
        play.submit(replace(kept, items=("another",)))
        assert await play.until(lambda: len(play.events("map.ended")) == 2, 3600.0)
        assert [one.facts["outcome"] for one in ends(play)[len(ITEMS) :]] == ["complete"]
        assert play.sim.nodes() == nodes
        assert await play.close() == []

    perform(plot, scripts={"*": SCRIPT})


def test_failed_items_are_listed_and_the_others_continue() -> None:
    crashing = replace(SCRIPT, crashes={1: Crash(step=2, exit=3)})  # every item's first attempt

    async def plot(play: EngineHarness) -> None:
        play.submit(MAP)
        sweep = await ended(play)
        assert (sweep.complete, sweep.worst) == (0, 3)
        assert sorted(sweep.failed) == [*range(len(ITEMS))]  # two fail at the same moment
        facts = ends(play)[0].facts
        assert facts["exit"] == 3 and Crash().line in facts["lines"][-1]
        assert not play.sim.remains()

    perform(plot, scripts={"*": crashing})


def test_a_failed_item_is_tried_again() -> None:
    crashing = replace(SCRIPT, crashes={1: Crash(step=2)})

    async def plot(play: EngineHarness) -> None:
        play.submit(replace(MAP, limits={"failures": 1}))
        sweep = await ended(play)
        succeeded_once(play)
        assert sweep.worst == 0

    perform(plot, scripts={"*": crashing})


def test_an_item_that_runs_too_long_is_ended() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(replace(MAP, limits={"failures": 5, "timeout_s": 20.0}))
        sweep = await ended(play)
        assert (sweep.complete, len(sweep.failed), sweep.worst) == (0, len(ITEMS), 124)
        starts = {one.facts["attempt"]: one.at for one in play.events("attempt.started")}
        for one in play.events("attempt.stopping"):
            assert 20.0 <= one.at - starts[one.facts["attempt"]] < 25.0

    perform(plot, scripts={"*": replace(SCRIPT, steps=1000)})


def test_a_stopped_map_resumes() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(MAP)
        assert await play.until(lambda: len(ends(play)) >= 3, 3600.0)
        play.submit(replace(MAP, goal=Goal.GONE))
        assert await play.until(lambda: not play.sim.remains(), 3600.0)
        many = len(ends(play))
        await play.advance(600.0)
        assert len(ends(play)) == many < len(ITEMS)
        play.submit(MAP)
        await ended(play)
        succeeded_once(play)

    perform(plot, scripts={"*": SCRIPT})


def test_new_items_replace_those_that_run() -> None:
    others = ("x", "y", "z")

    async def plot(play: EngineHarness) -> None:
        play.submit(MAP)
        assert await play.until(lambda: len(ends(play)) >= 3, 3600.0)
        await play.advance(10.0)  # the next ones are running
        many = len(ends(play))
        play.submit(replace(MAP, items=others))
        sweep = await ended(play)
        assert (sweep.complete, sweep.made) == (3, 3)
        rest = [one.facts for one in ends(play)[many:]]
        assert sorted(one["trial"] for one in rest) == [0, 1, 2]
        gangs = play.sim.fleet.gangs
        launched = {one.facts["attempt"]: one for one in play.events("attempt.launched")}
        changed = play.events("map.started")[1].at
        for one in rest:  # none of them counts the success of an item of the first map
            assert gangs[one["attempt"]].completed and launched[one["attempt"]].at >= changed

    perform(plot, scripts={"*": SCRIPT})


def test_items_that_were_lost_with_the_store_are_named() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(MAP)
        assert await play.until(lambda: len(ends(play)) >= 2, 3600.0)
        await lose_store(play)
        play.wanted = True
        await play.advance(300.0)
        said = {str(event.facts["message"]) for event in play.events("engine.problem")}
        assert any("gpt: its items were lost with the store" in one for one in said), said
        assert not ends(play)

    perform(plot, scripts={"*": SCRIPT})
