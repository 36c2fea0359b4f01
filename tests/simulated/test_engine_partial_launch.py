"""A launch that reaches one host of two: in the end both run or neither; one whose answer does not
come is overtaken by a stop.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_programs import Script
from tpuherd.errors import NotReached
from tpuherd.model.slots_and_plan import Goal
from tpuherd_host.agent import frames

SCRIPTS = {"*": Script(steps=30, step_s=2.0, init_s=1.0)}
PATIENCE_S = 90.0  #: a call that stays unanswered is known to be so after a minute


@dataclass(kw_only=True)
class Half:
    """Keeps the command from one host of two, a number of times."""

    play: EngineHarness
    worker: int
    how: Callable[["Half", VirtualLink, int], None]
    times: int = 1
    struck: list[float] = field(default_factory=list)

    def called(self, line: VirtualLink, piece: bytes) -> bool:
        """Whether a call reaches its agent."""
        if piece[4] != frames.CALL or line.machine.view.worker != self.worker:
            return True
        [frame] = frames.FrameReader().feed(piece)
        if frame.content.get("verb") != "start" or len(self.struck) >= self.times:
            return True
        self.struck.append(self.play.sim.clock.now())
        self.how(self, line, frame.id)
        return False

    def alone(self) -> list[str]:
        """Hosts whose command runs while the other host of its gang has none."""
        found = []
        for gang in self.play.sim.fleet.gangs.values():
            alive = [one.host.name for one in gang.members.values() if one.alive]
            if len(alive) == 1:
                found += alive
        return found


def dropped(half: Half, line: VirtualLink, call: int) -> None:
    """It is lost on its way, and the link lives."""


def cut(half: Half, line: VirtualLink, call: int) -> None:
    """It is lost with its link."""
    line.cut(NotReached("the network cut the link"))


def refused(half: Half, line: VirtualLink, call: int) -> None:
    """The agent says that it can't: there is no room."""
    line.down.send(
        frames.pack_json(frames.FAIL, call, {"error": "full", "sentence": "the disk is full"})
    )


def killed(half: Half, line: VirtualLink, call: int) -> None:
    """The engine is killed at that moment, too."""
    half.play.kill()
    line.cut(NotReached("the engine is gone"))


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("how", [dropped, cut, refused, killed], ids=lambda how: how.__name__)
@pytest.mark.parametrize("times", [1, 2])
def test_an_attempt_runs_on_all_hosts_or_none(worker: int, how: Any, times: int) -> None:
    async def plot(play: EngineHarness) -> Half:
        half = Half(play=play, worker=worker, how=how, times=times)
        play.sim.fleet.called = half.called
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: len(half.struck) == times, 3600.0)
        lonely_since: float | None = None
        while not play.events("slot.done"):
            await play.advance(5.0)
            now = play.sim.clock.now()
            lonely_since = (lonely_since or now) if half.alone() else None
            assert lonely_since is None or now - lonely_since < PATIENCE_S, half.alone()
            assert now - half.struck[0] < 3600.0, play.unmet_jobs()
        assert await play.close() == []
        return half

    half = perform(plot, scripts=SCRIPTS)
    done = [gang for gang in half.play.sim.fleet.gangs.values() if gang.completed]
    assert [sorted(gang.members) for gang in done] == [[0, 1]]
    assert half.play.remembered.slots["gpt-0"].failures == 0, "none of it was the user's fault"


@pytest.mark.parametrize("left", [True, False], ids=["they leave", "they stay"])
def test_no_host_starts_while_others_use_the_chips_of_one(*, left: bool) -> None:
    """Whoever started would wait for that host in vain. After ten minutes libtpu has the word."""

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("slot.prepared")), 3600.0)
        held = next(one for one in play.sim.machines() if one.view.worker == 1)
        held.used_by = "`python3 hold.py` (pid 7 of ann) holds /dev/accel0"
        assert await play.until(lambda: bool(play.events("attempt.launched")), 600.0)
        await play.advance(500.0)
        assert not any(gang.alive for gang in play.sim.fleet.gangs.values())
        said = play.store.slot_messages()["gpt-0"]
        assert said.endswith(f"once its chips are free: {held.name}: {held.used_by}")
        held.used_by = "" if left else held.used_by
        await play.advance(10.0 if left else 110.0)
        assert play.events("attempt.started")
        assert await play.until(lambda: bool(play.events("slot.done")), 600.0)
        assert play.verdict() == []

    perform(plot, scripts=SCRIPTS)


@pytest.mark.parametrize("goal", [None, Goal.GONE, Goal.IDLE], ids=["down", "stop", "idle"])
@pytest.mark.parametrize(
    ("verb", "deaf", "began"),
    [("trial.begin", [0, 1], []), ("trial.begin", [1], []), ("start", [1], [0])],
    ids=["nothing is answered", "one host does not answer", "one host has begun"],
)
def test_a_stop_overtakes_a_launch_that_is_not_answered(
    verb: str, deaf: list[int], began: list[int], goal: Goal | None
) -> None:
    job = SimJob(zones=("us-east5-a",), items=("a", "b"), limits={"failures": 0})

    async def plot(play: EngineHarness) -> None:
        play.submit(job)
        assert await play.until(lambda: bool(play.events("slot.prepared")), 3600.0)
        for machine in play.sim.machines():
            machine.deaf |= {verb} if machine.view.worker in deaf else set()
        assert await play.until(lambda: bool(play.events("attempt.launched")), 600.0)
        await play.advance(5.0)
        assert not play.events("attempt.started")
        if goal is None:
            play.down("gpt")
        else:
            play.submit(replace(job, goal=goal, keep=goal is Goal.IDLE))
        assert await play.until(lambda: bool(play.events("attempt.ended")), 30.0)
        (end,) = play.events("attempt.ended")
        assert end.facts["verdict"] == "stopped"
        gangs = play.sim.fleet.gangs.values()
        assert [sorted(gang.members) for gang in gangs if gang.members] == (
            [began] if began else []
        )
        assert not any(gang.alive for gang in gangs)
        if goal is not Goal.IDLE:
            assert await play.until(lambda: not play.sim.nodes(), 120.0)
        assert play.verdict() == []

    perform(plot, scripts=SCRIPTS)
