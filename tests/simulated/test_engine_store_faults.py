"""A statement of the engine's store fails: disk error, full disk, torn page. `make storm` has more.

A failure names the command that plays its history again.
"""

import sqlite3
from dataclasses import replace

import pytest

from tests.simulated.engine_disk import DISK_FAULTS, fill_disk, tear_page
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_storm import again, play
from tpuherd.engine.loop import SAVE_S
from tpuherd.engine.recover_store import SILENT_S
from tpuherd.model.slots_and_plan import Goal
from tpuherd.store.backup import DRAFT
from tpuherd.store.set_aside import acknowledge_restoration

SAMPLE = (
    ("run", 2, "full"), ("run", 7, "torn"), ("run", 400, "eio"), ("run", 700, "torn"),
    ("preempted", 150, "torn"), ("preempted", 695, "torn"), ("preempted", 900, "full"),
    ("preempted", 1100, "eio"), ("up-and-down", 398, "torn"), ("up-and-down", 414, "torn"),
    ("swept", 280, "torn"), ("swept", 325, "torn"), ("swept", 805, "torn"), ("swept", 1000, "full"),
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


async def damage(play: EngineHarness) -> None:
    """The next statement of the engine meets a torn page; until the store has recovered."""

    def fail(connection: sqlite3.Connection, statement: str) -> None:
        play.stated = lambda connection, statement: None
        raise tear_page(connection, play.folder, LEASE)

    play.stated = fail
    assert await play.until(lambda: bool(play.events("store.recovered")), 600.0)


def test_after_a_restore_a_zone_that_does_not_answer_is_waited_for() -> None:
    """The backup knows the job and not its node, which is there."""

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(goal=Goal.IDLE, zones=("us-east5-a",)))
        assert await play.until(play.met, 250.0), "before the engine makes the next backup"
        assert play.sim.weather("unreachable-zone", zone="us-east5-a", **{"for": 2 * SILENT_S - 60})

        await damage(play)
        await play.advance(600.0)
        created = [asked.name for asked in play.sim.asked if asked.creates]
        assert created == ["gpt-0-g1-7kq"]

    perform(plot)


def test_nothing_is_requested_or_deleted_between_a_restore_and_its_acknowledgement() -> None:
    """A job that was deleted after the backup would run again."""

    async def plot(play: EngineHarness) -> None:
        play.acknowledges = False
        gone = SimJob(job="gone", goal=Goal.IDLE, zones=("us-east5-a",))
        play.submit(gone)
        play.submit(replace(gone, job="kept"))
        await play.until(play.met, 3600.0)
        (play.folder / DRAFT).mkdir()  # no backup can be made any more
        play.down("gone")
        assert await play.until(lambda: not play.sim.nodes("gone-0"), 600.0)
        play.said["gone"] = gone  # as the backup says
        await damage(play)
        (play.folder / DRAFT).rmdir()
        play.submit(replace(gone, job="new"))
        play.down("kept")
        before = play.mutations()
        await play.advance(1800.0)
        assert play.mutations() == before
        messages = play.store.slot_messages()
        assert all("herd engine acknowledge" in messages[slot] for slot in ("new-0", "gone-0"))
        play.down("gone")
        acknowledge_restoration(play.store, play.folder)
        assert await play.until(lambda: list(play.sim.nodes()) == ["new-0-g1-7kq"], 600.0)

    perform(plot)


def test_a_job_that_is_done_does_not_run_again_after_a_restore() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(job="held", goal=Goal.IDLE, zones=("us-east5-a",)))
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("slot.done")), 36_000.0)
        await play.advance(SAVE_S)

        await damage(play)
        acknowledge_restoration(play.store, play.folder)
        await play.advance(3600.0)
        created = sorted(asked.name for asked in play.sim.asked if asked.creates)
        assert created == ["gpt-0-g1-7kq", "held-0-g1-7kq"]

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
