"""A store whose commits take seconds: the engine is late, loses nothing, and repeats nothing."""

import asyncio
import sqlite3
from random import Random

import pytest

from tests.simulated.engine_harness import TTL_S, EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Script
from tests.simulated.virtual_loop import VirtualLoop

STALLS_S = (2.0, 10.0, 30.0)
SCRIPTS = {"*": Script(steps=40, step_s=10.0)}


def stall(play: EngineHarness, dice: Random, share: float) -> list[float]:
    """From now on this share of the engine's commits takes seconds, in which it does nothing."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    stalls: list[float] = []

    def wait(connection: sqlite3.Connection, statement: str) -> None:
        if statement == "COMMIT" and dice.random() < share:
            stalls.append(dice.choice(STALLS_S))
            loop.selector.now += stalls[-1]

    play.stated = wait
    return stalls


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_losses_are_answered_although_every_write_takes_seconds(share: float) -> None:
    async def plot(play: EngineHarness) -> list[str]:
        play.watch.spare_s = 3600.0
        for job in ("gpt", "bert"):
            play.submit(SimJob(job=job))
        stalls = stall(play, Random(7), share)
        for number in range(6):
            await play.advance(400.0)
            ready = sorted(name for name, state in play.sim.nodes().items() if state == "READY")
            if ready:
                quiet = {} if number % 2 else {"notice_s": 0, "flag": False, "acpi": False}
                play.sim.weather("preempt", target=ready[number % len(ready)], **quiet)
        found = await play.close(4 * 3600.0)
        assert sum(stalls) > 20 * TTL_S
        assert play.lives == 1, "no engine loses its lease to itself"
        assert not play.events("engine.problem")
        return found

    assert perform(plot, scripts=SCRIPTS) == []


def test_an_engine_that_a_stall_outlived_is_replaced_and_writes_nothing_more() -> None:
    """Another takes the lease that ran out in the stall; no attempt starts twice."""

    async def plot(play: EngineHarness) -> list[str]:
        play.submit(SimJob(job="gpt", zones=("us-east5-a",)))
        await play.until(lambda: bool(play.events("attempt.started")), 1800.0)
        first = play.life
        assert first is not None
        lease = play.store.lease_holder(play.lease_clock.now())
        assert lease is not None
        taken: list[int] = []

        def lose(connection: sqlite3.Connection, statement: str) -> None:
            if statement == "BEGIN IMMEDIATE" and not taken:
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualLoop)
                loop.selector.now += 3 * TTL_S
                epoch = play.store.take_lease(lease, play.lease_clock.now(), TTL_S)
                assert epoch is not None
                taken.append(epoch)

        play.stated = lose
        task = first.task
        assert task is not None
        assert await play.until(task.done, 600.0)
        assert play.lives == 1
        play.store.release_lease(taken[0])
        found = await play.close()
        assert play.lives == 2
        assert len(play.events("attempt.launched")) == 1
        return found

    assert perform(plot, scripts=SCRIPTS) == []
