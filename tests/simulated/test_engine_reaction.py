"""How soon a lost node is replaced, whatever the moment between two looks at the cloud."""

from collections.abc import Callable

import pytest

from tests.simulated.engine_faults import cut
from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_programs import Script
from tpuherd.engine.informer import JITTER
from tpuherd.planner.bid_status import OFF_S_MAX
from tpuherd.planner.bidding import SILENT_LOOK_S
from tpuherd_sim.tpu.durations import DURATIONS

LOOK_S = 5.0  #: as engines do while they hold nodes
ROUNDS = 8  #: at as many moments between two looks
THINKS_S = 0.3  #: for news that come in bursts, and the call
SHOWN_S = DURATIONS["request.look"][1]  #: until a request shows that its node is gone
SLEEPER = Script(steps=100_000, step_s=10.0, setup_s=1.0)
Strike = Callable[[EngineHarness, str], None]


def cut_links(play: EngineHarness, node: str) -> None:
    """The operating system of each host closes its connections."""
    for machine in play.sim.machines():
        for line in list(machine.lines.values()) if machine.view.node == node else ():
            cut(play, line)


def say_nothing(play: EngineHarness, node: str) -> None:
    """The links hang, as if the host were busy."""


def react(strike: Strike) -> list[float]:
    """The seconds from sudden losses to the requests for other nodes."""

    async def plot(play: EngineHarness) -> list[float]:
        play.look_s = LOOK_S
        play.submit(SimJob(copies=1))
        found = []
        for number in range(1, ROUNDS + 1):
            started = lambda number=number: len(play.events("attempt.started")) == number  # noqa: E731
            assert await play.until(started, 3600.0)
            await play.advance(60.0 + number * LOOK_S / ROUNDS)
            node = str(play.events("attempt.started")[-1].facts["bid"])
            begun, before = play.sim.clock.now(), len(play.events("bid.accepted"))
            play.sim.weather("preempt", target=node, notice_s=0, flag=False, acpi=False)
            strike(play, node)
            await play.advance(3 * LOOK_S)
            found.append(play.events("bid.accepted")[before].at - begun)
        return found

    found: list[float] = perform(plot, scripts={"*": SLEEPER})
    return found


@pytest.mark.parametrize(
    ("strike", "look_s"), [(cut_links, SILENT_LOOK_S), (say_nothing, LOOK_S + SHOWN_S)]
)
def test_a_sudden_loss_is_seen_at_the_next_look(strike: Strike, look_s: float) -> None:
    """Broken links make the engine look at once; without them it looks as often as ever, and what
    hosts that seem to answer run on is gone only when its request says so too."""
    times = react(strike)
    assert max(times) < look_s * (1 + JITTER) + THINKS_S, times


@pytest.mark.parametrize("ends_s", [30.0, 10_800.0])
def test_a_shutdown_that_nobody_explains_is_replaced_soon(ends_s: float) -> None:
    """A preemption without a flag; the second node is asked for beside the first."""

    async def plot(play: EngineHarness) -> float:
        play.submit(SimJob(copies=1))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        await play.advance(60.0)
        begun, before = play.sim.clock.now(), len(play.events("bid.accepted"))
        node = str(play.events("attempt.started")[-1].facts["bid"])
        play.sim.weather("preempt", target=node, notice_s=ends_s, flag=False)
        await play.advance(20.0)
        given_back = [one.facts["bid"] for one in play.events("bid.withdrawn")]
        assert node not in given_back and not play.events("bid.notice_received")
        return play.events("bid.accepted")[before].at - begun

    assert perform(plot, scripts={"*": SLEEPER}) < OFF_S_MAX + THINKS_S
