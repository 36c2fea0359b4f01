"""A statement of the engine's store fails: disk error, full disk, torn page. `make storm` has more.

A failure names the command that plays its history again.
"""

import sqlite3

import pytest

from tests.simulated.engine_disk import DISK_FAULTS, fill_disk, tear_page
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_storm import again, play
from tpuherd.model.slots_and_plan import Goal

SAMPLE = (
    ("run", 2, "full"), ("run", 7, "torn"), ("run", 400, "eio"), ("run", 700, "torn"),
    ("preempted", 150, "torn"), ("preempted", 691, "torn"), ("preempted", 900, "full"),
    ("preempted", 1100, "eio"), ("up-and-down", 398, "torn"), ("up-and-down", 414, "torn"),
    ("swept", 280, "torn"), ("swept", 325, "torn"), ("swept", 800, "torn"), ("swept", 1000, "full"),
)  # fmt: skip


@pytest.mark.parametrize(("lifecycle", "number", "how"), SAMPLE)
def test_no_failing_statement_of_the_store_is_fatal(lifecycle: str, number: int, how: str) -> None:
    case = (lifecycle, (f"store:{number}:{how}",))
    found = play(case)[1]
    assert not found, again(case)


@pytest.mark.parametrize("how", DISK_FAULTS)
def test_a_disk_fault_reaches_the_engine(how: str) -> None:
    """A search whose faults never occur would find nothing."""

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(zones=("us-east5-a",)))
        await play.until(play.met, 300.0)
        met: list[str] = []

        def fail(connection: sqlite3.Connection, statement: str) -> None:
            if not met and statement == "BEGIN IMMEDIATE":
                met.append(how)
                play.kept = play.history()
                raise DISK_FAULTS[how](connection, play.folder, 0)

        play.stated = fail
        await play.advance(30.0)
        assert met == [how]
        kind = "store.set_aside" if how == "torn" else "engine.problem"
        assert len(play.events(kind)) == 1
        assert list(play.store.stored_jobs()) == ["gpt"]

    perform(plot)


def test_a_removed_job_does_not_return_when_the_store_is_damaged() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(goal=Goal.IDLE, zones=("us-east5-a",)))
        await play.until(play.met, 3600.0)
        play.down("gpt")
        await play.until(lambda: bool(play.events("bid.withdrawn")), 60.0)
        assert play.sim.remains()  # its deletion takes a while

        def fail(connection: sqlite3.Connection, statement: str) -> None:
            play.stated = lambda connection, statement: None
            raise tear_page(connection, play.folder, LEASE)

        play.stated = fail
        assert await play.until(lambda: bool(play.events("store.recovered")), 300.0)
        assert len(play.events("job.submitted")) == 1
        assert not play.store.stored_jobs()
        assert await play.until(lambda: not play.sim.remains(), 600.0)
        assert len(play.events("bid.requested")) == 1

    perform(plot)


def test_a_full_disk_is_reported_within_seconds_even_when_idle() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(goal=Goal.IDLE, zones=("us-east5-a",)))
        await play.until(play.met, 3600.0)
        await play.advance(60.0)
        troubles = play.store.troubles

        def fail(connection: sqlite3.Connection, statement: str) -> None:
            if statement == "COMMIT":
                raise fill_disk(connection, play.folder, 0)

        for times in range(2):  # the second time it is an event already
            play.stated = fail
            await play.advance(15.0)
            assert [one.sentence for one in troubles.read()] == [
                f"the disk is full: {play.folder} can't be written"
            ]
            assert len(play.events("engine.problem")) == times
            play.stated = lambda connection, statement: None
            await play.advance(75.0)
            assert len(play.events("engine.problem")) == 1
            assert not troubles.read()

    perform(plot)


LEASE = 5  #: a page of which no job and no event is a part
