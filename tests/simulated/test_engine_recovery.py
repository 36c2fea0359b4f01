"""What an engine survives besides short faults: rivals, sleep, lost stores and full disks."""

from dataclasses import replace
from typing import Any

import pytest

from tests.simulated.engine_faults import lose_store
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_lifecycles import progress
from tests.simulated.engine_ports import EngineLife
from tests.simulated.engine_programs import Script
from tpuherd.errors import OperationFailed
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.ports import LeaseHolder
from tpuherd.store.database import Database

LONG = {"gpt": Script(steps=60)}
ZONE = ("us-east5-a",)


def begun(play: EngineHarness, step: int = 3) -> Any:
    """The job has come so far."""
    return play.until(lambda: progress(play, "gpt-0") >= step, 3600.0)


def verdicts(play: EngineHarness) -> list[str]:
    """How attempts ended."""
    return [str(event.facts["verdict"]) for event in play.events("attempt.ended")]


def until_more_starts(play: EngineHarness, starts: int) -> Any:
    """Another engine has started."""
    return play.until(lambda: len(play.events("engine.started")) > starts, 600.0)


def test_a_second_engine_finds_the_lease_taken() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(zones=ZONE))
        await begun(play)
        rival = Database(play.folder, play.sim.clock.now())
        holder = LeaseHolder(pid=1, host="another", who="me@another")
        assert rival.take_lease(holder, play.sim.clock.now(), 30.0) is None
        rival.close()
        assert await play.close() == [] and play.lives == 1

    perform(plot, scripts=LONG)


def test_an_engine_that_lost_its_lease_stops_and_nothing_runs_twice() -> None:
    """A laptop froze, another engine took over, and the laptop thaws."""

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(zones=ZONE))
        await begun(play)
        rival = Database(play.folder, play.sim.clock.now())
        now = play.sim.clock.now()
        first = play.engine
        epoch = rival.take_lease(
            LeaseHolder(pid=1, host="another", who="me@another"), now + 3600.0, 30.0
        )
        assert epoch is not None
        await play.advance(30.0)
        assert (
            first is not play.engine
            or play.life is None
            or play.life.task is None
            or (play.life.task.done())
        )
        rival.release_lease(epoch)
        rival.close()
        assert await play.close() == []
        assert verdicts(play) == ["success"]

    perform(plot, scripts=LONG)


@pytest.mark.parametrize("off_s", [10_800.0, -10_800.0])
def test_an_engine_that_starts_with_a_wrong_clock_ends_nothing_and_writes_the_right_time(
    off_s: float,
) -> None:
    """Three hours ahead or behind, as commands then are, too; then right again. What counts is what
    has passed."""

    async def plot(play: EngineHarness) -> list[str]:
        play.elapsed = play.sim.clock.now
        play.submit(SimJob(zones=ZONE, limits={"lifetime_s": 3600.0}))
        await begun(play)
        for by_s in (off_s, 0.0, -off_s):
            play.kill()
            play.clock.set(by_s)
            play.submit(SimJob(job=f"bert{by_s:.0f}", zones=ZONE))
            starts = len(play.events("engine.started"))
            assert await until_more_starts(play, starts)
            await play.advance(20.0)
            (*_, begin) = play.events("engine.started")
            assert abs(begin.at - play.sim.clock.now()) < 30.0
        assert await play.until(play.met, 3600.0) and verdicts(play) == ["success"] * 4
        return await play.close()

    assert perform(plot, scripts=LONG) == []


@pytest.mark.parametrize("away_s", [600.0, 86_400.0])
def test_an_engine_that_was_away_finds_everything_unchanged(away_s: float) -> None:
    async def plot(play: EngineHarness) -> None:
        play.watch.spare_s = 2 * away_s
        play.submit(SimJob(zones=ZONE))
        await begun(play)
        play.wanted = False
        play.kill()
        await play.advance(away_s)
        play.wanted = True
        assert await play.close() == []
        assert verdicts(play) == ["success"]
        assert [event.facts["bid"] for event in play.events("bid.requested")] == ["gpt-0-g1-7kq"]

    perform(plot, scripts=LONG)


async def lose(play: EngineHarness) -> None:
    """A job's store is lost while it runs, and another engine begins."""
    play.submit(SimJob(zones=ZONE))
    await begun(play)
    await lose_store(play)
    play.wanted = True


def dying(play: EngineHarness, moment: int) -> None:
    """The engine dies at that one of the moments that are still to come."""
    places: list[str] = []

    def at(life: EngineLife, place: str) -> None:
        places.append(place)
        if len(places) == moment + 1:
            life.die()

    play.at = at


async def found_again(play: EngineHarness) -> None:
    """What runs is adopted and finishes; nothing is requested again."""
    await play.until(lambda: "gpt" in play.store.stored_jobs(), 300.0)
    play.update_wanted_slots()
    assert await play.close() == []
    assert "success" in verdicts(play)
    created = [asked.name for asked in play.sim.asked if asked.creates]
    assert created == ["gpt-0-g1-7kq"]


def test_a_lost_store_is_rebuilt_from_the_world() -> None:
    async def plot(play: EngineHarness) -> None:
        await lose(play)
        await found_again(play)

    perform(plot, scripts=LONG)


@pytest.mark.parametrize("moment", range(0, 14, 3))
def test_an_engine_is_killed_while_it_adopts(moment: int) -> None:
    async def plot(play: EngineHarness) -> None:
        await lose(play)
        dying(play, moment)
        await found_again(play)

    perform(plot, scripts=LONG)


@pytest.mark.parametrize("moment", range(0, 14, 3))
def test_all_jobs_are_adopted_though_the_engine_is_killed_meanwhile(moment: int) -> None:
    jobs = ("bert", "gpt", "llama")

    async def plot(play: EngineHarness) -> None:
        for job in jobs:
            play.submit(SimJob(job=job, zones=ZONE))
        far = [f"{job}-0" for job in jobs]
        assert await play.until(lambda: min(progress(play, one) for one in far) >= 3, 3600.0)
        await lose_store(play)
        dying(play, moment)
        play.wanted = True
        assert await play.until(lambda: len(play.store.stored_jobs()) == len(jobs), 300.0)
        play.update_wanted_slots()
        assert await play.close() == []
        created = sorted(asked.name for asked in play.sim.asked if asked.creates)
        assert created == [f"{job}-0-g1-7kq" for job in jobs]

    perform(plot, scripts={"*": Script(steps=60)})


def test_nodes_of_a_silent_zone_are_adopted_when_it_answers_again() -> None:
    """The first survey after the loss gets no answer from the zone with all nodes."""

    async def plot(play: EngineHarness) -> None:
        await lose(play)
        assert play.sim.weather("unreachable-zone", zone=ZONE[0], times=2)
        await found_again(play)

    perform(plot, scripts=LONG)


def test_a_full_disk_stops_actions_and_nothing_else() -> None:
    """Steps that can't be recorded are not executed; with free space, work continues."""

    async def plot(play: EngineHarness) -> None:
        full: list[bool] = []

        def at(life: EngineLife, place: str) -> None:
            if full and place.startswith("before ") and not place.startswith(TO_THE_WORLD):
                raise OperationFailed("the disk is full")

        play.at = at
        play.submit(SimJob(zones=ZONE))
        await begun(play)
        full.append(True)
        mark = len(play.mutations())
        play.sim.weather("preempt", target="us-east5-a/*", notice_s=0)
        await play.advance(600.0)
        assert len(play.mutations()) == mark
        full.clear()
        assert await play.close() == []
        assert verdicts(play) == ["preempted", "success"]

    perform(plot, scripts=LONG)


TO_THE_WORLD = ("before GET", "before POST", "before DELETE")


def test_a_job_changed_while_no_engine_runs_is_updated() -> None:
    async def plot(play: EngineHarness) -> None:
        job = SimJob(goal=Goal.IDLE, zones=ZONE, copies=2)
        play.submit(job)
        await play.until(play.met, 3600.0)
        play.wanted = False
        play.kill()
        play.submit(replace(job, copies=1))
        await play.advance(300.0)
        play.wanted = True
        await play.until(play.met, 900.0)
        assert list(play.sim.nodes()) == ["gpt-0-g1-7kq"]
        assert await play.close() == []

    perform(plot)


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[HistoryEvent]:
        async def plot(play: EngineHarness) -> list[HistoryEvent]:
            play.submit(SimJob(copies=2))
            await begun(play)
            play.sim.weather("preempt", target="*/*", notice_s=30)
            await play.close()
            return play.events()

        found: list[HistoryEvent] = perform(plot, scripts=LONG, seed=5)
        return found

    assert history() == history()
