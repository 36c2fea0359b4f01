"""Lifecycles whose every moment is tested with a fault: what a user does, and the expected end."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.simulated.engine_harness import EngineHarness
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Crash, Script
from tpuherd.model.slots_and_plan import Goal, RequestKind

PATIENCE_S = 5400.0
ZONE = ("us-east5-a",)
TWO = ("us-east5-a", "us-east5-b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifecycle:
    """A plot with its scripts."""

    plot: Callable[[EngineHarness], Awaitable[None]]
    scripts: Mapping[str, Script] = field(default_factory=dict)
    #: a host hangs: then the engine is also off for a while, or the host thaws, at each moment
    freezes: bool = False


async def run(play: EngineHarness) -> None:
    """A job runs to its end."""
    play.submit(SimJob(zones=TWO, outputs=True))
    await play.until(play.met, PATIENCE_S)


async def direct(play: EngineHarness) -> None:
    """The same on a node of its own."""
    play.submit(SimJob(zones=ZONE, kind=RequestKind.DIRECT))
    await play.until(play.met, PATIENCE_S)


async def up_and_down(play: EngineHarness) -> None:
    """A node to keep comes, and goes."""
    play.submit(SimJob(goal=Goal.IDLE, zones=TWO))
    await play.until(play.met, PATIENCE_S)
    await play.advance(60.0)
    await play.repeat(partial(play.down, "gpt"))
    await play.until(play.met, 1800.0)


async def preempted(play: EngineHarness) -> None:
    """The node is preempted during the run, with notice; the job continues elsewhere."""
    play.submit(SimJob(zones=TWO))
    await play.until(lambda: progress(play, "gpt-0") >= 5, PATIENCE_S)
    for key, node in list(play.sim.world.nodes.items()):
        if node.state == "READY":
            play.sim.weather("preempt", target=key, notice_s=30)
    await play.until(play.met, PATIENCE_S)


async def frozen(play: EngineHarness) -> None:
    """A host freezes for good; the job continues on another node."""
    play.submit(SimJob(zones=TWO))
    await play.until(lambda: progress(play, "gpt-0") >= 5, PATIENCE_S)
    play.sim.weather("hang", target="gpt-0-*/w1")
    await play.until(play.met, PATIENCE_S)


async def scaled(play: EngineHarness) -> None:
    """One copy, then three, then two."""
    play.submit(SimJob(goal=Goal.IDLE, zones=ZONE))
    await play.until(play.met, PATIENCE_S)
    play.submit(SimJob(goal=Goal.IDLE, zones=ZONE, copies=3))
    await play.until(play.met, PATIENCE_S)
    play.submit(SimJob(goal=Goal.IDLE, zones=ZONE, copies=2))
    await play.until(play.met, PATIENCE_S)


async def recoded(play: EngineHarness) -> None:
    """The code changes in mid-run."""
    play.submit(SimJob(zones=ZONE))
    await play.until(lambda: progress(play, "gpt-0") >= 4, PATIENCE_S)
    play.submit(SimJob(zones=ZONE, code="c2"))
    await play.until(play.met, PATIENCE_S)


async def failing(play: EngineHarness) -> None:
    """The script crashes twice, and comes to its end the third time."""
    play.submit(SimJob(zones=ZONE))
    await play.until(play.met, PATIENCE_S)


async def swept(play: EngineHarness) -> None:
    """Three trials over two slots."""
    play.submit(SimJob(zones=TWO, copies=2, sweep=SWEEP))
    await play.until(play.met, PATIENCE_S)


async def mapped(play: EngineHarness) -> None:
    """Three items over two slots."""
    play.submit(SimJob(zones=TWO, copies=2, items=("a", "b", "c")))
    await play.until(play.met, PATIENCE_S)


SWEEP = {"method": "grid", "metric": "loss", "parameters": {"lr": [1, 2, 3]}}
CRASHES = {1: Crash(step=4, worker=1), 2: Crash(step=4)}
LIFECYCLES: Mapping[str, Lifecycle] = {
    "run": Lifecycle(plot=run),
    "direct": Lifecycle(plot=direct),
    "up-and-down": Lifecycle(plot=up_and_down),
    "preempted": Lifecycle(plot=preempted, scripts={"gpt": Script(steps=16)}),
    "frozen": Lifecycle(plot=frozen, scripts={"gpt": Script(steps=16)}, freezes=True),
    "scaled": Lifecycle(plot=scaled),
    "recoded": Lifecycle(plot=recoded, scripts={"gpt": Script(steps=16)}),
    "failing": Lifecycle(plot=failing, scripts={"gpt": Script(steps=16, crashes=CRASHES)}),
    "swept": Lifecycle(plot=swept, scripts={"gpt": Script(steps=6, metric="loss")}),
    "mapped": Lifecycle(plot=mapped, scripts={"gpt": Script(steps=3, reports=False)}),
}


def progress(play: EngineHarness, slot: str) -> int:
    """The step that the slot's latest gang has come to."""
    gangs = [gang for gang in play.sim.fleet.gangs.values() if gang.slot == slot]
    return max((gang.step for gang in gangs if gang.alive), default=-1)
