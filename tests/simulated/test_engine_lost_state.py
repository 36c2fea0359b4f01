"""Agents that lose their state or stop answering, and attempts that a user's command ends."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_hosts import Machine
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import TERM, Script
from tpuherd_host.agent.state_machine.messages import TasksCleaned

MIDDLE = {"*": Script(steps=40, step_s=5.0)}
LONG = {"*": Script(steps=10_000, step_s=5.0, on_term="ignore")}
SEEN_S_MAX = 75.0  #: until it is said that a host gives no sign of life
GRACE_S, KILL_S, LOGS_S, DELETE_S = 30.0, 45.0, 120.0, 240.0


async def started(play: EngineHarness) -> list[Machine]:
    """A job runs on both hosts of its node."""
    play.submit(SimJob(zones=("us-east5-a",)))
    assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
    await play.advance(30.0)
    return sorted(play.sim.machines(), key=lambda one: one.view.worker)


def reboot(play: EngineHarness, machine: Machine) -> None:
    place = f"{machine.view.zone}/{machine.view.node}/w{machine.view.worker}"
    assert play.sim.weather("reboot", target=place)


@pytest.mark.parametrize("hosts", [[0], [1], [0, 1]], ids=str)
@pytest.mark.parametrize("boots", [True, False], ids=["reboot", "same boot"])
def test_an_attempt_unknown_to_its_agent_has_ended(hosts: list[int], boots: bool) -> None:
    async def plot(play: EngineHarness) -> None:
        machines = await started(play)
        for machine in (machines[number] for number in hosts):
            machine.lose_state()
            if boots:
                reboot(play, machine)
        assert await play.until(lambda: bool(play.events("slot.done")), 900.0), play.unmet_jobs()
        whys = [str(event.facts["why"]) for event in play.events("attempt.stopping")]
        assert not [why for why in whys if "still lives on" in why]
        ends = [event.facts["verdict"] for event in play.events("attempt.ended")]
        assert ends == ["node fault", "success"]
        assert play.verdict() == []

    perform(plot, scripts=MIDDLE)


def test_an_agent_that_never_answers_is_disconnected_and_its_node_replaced() -> None:
    async def plot(play: EngineHarness) -> None:
        (_, machine) = await started(play)
        begun = play.sim.clock.now()
        machine.stick(7200.0)
        assert await play.until(lambda: bool(play.events("bid.unhealthy")), 120.0)
        assert play.events("bid.unhealthy")[0].at - begun < SEEN_S_MAX
        assert play.engine is not None
        crew = play.engine._gang_client
        bid = str(play.events("bid.requested")[0].facts["bid"])

        def trouble() -> str:
            return crew.host_statuses()[bid][1].trouble if bid in crew.host_statuses() else ""

        assert await play.until(lambda: "has not responded for" in trouble(), 180.0)
        assert await play.until(lambda: bool(play.events("slot.done")), 5400.0)
        assert len(play.events("bid.ready")) == 2
        assert play.verdict() == []

    perform(plot, scripts=MIDDLE)


def test_an_agent_that_answers_late_keeps_its_attempt() -> None:
    async def plot(play: EngineHarness) -> list[Any]:
        (_, machine) = await started(play)
        machine.stick(45.0)
        assert await play.until(lambda: bool(play.events("slot.done")), 900.0)
        return [event.facts["verdict"] for event in play.events("attempt.ended")]

    assert perform(plot, scripts=MIDDLE) == ["success"]


def stick(play: EngineHarness, machine: Machine) -> None:
    machine.stick(100_000.0)


def forget(play: EngineHarness, machine: Machine) -> None:
    machine.lose_state()


def lose_log(play: EngineHarness, machine: Machine) -> None:
    """The agent reports a longer log than it has: the rest can't be fetched."""
    machine.deaf.add("follow")
    for line in list(machine.lines.values()):
        line.close()


def silence(play: EngineHarness, machine: Machine) -> None:
    place = f"{machine.view.zone}/{machine.view.node}/w{machine.view.worker}"
    assert play.sim.weather("network", target=place, state="down")


@pytest.mark.parametrize("trouble", [stick, forget, lose_log, silence, reboot])
def test_down_waits_no_longer_than_grace_kill_and_the_rest_of_a_log(
    trouble: Callable[[EngineHarness, Machine], None],
) -> None:
    async def plot(play: EngineHarness) -> tuple[float, list[str]]:
        for machine in await started(play):
            trouble(play, machine)
        await play.advance(10.0)
        begun = play.sim.now()
        play.down("gpt")
        assert await play.until(lambda: bool(play.events("bid.withdrawn")), 3600.0)
        withdrawn = play.sim.now() - begun
        assert await play.until(lambda: not play.sim.remains(), DELETE_S)
        return withdrawn, play.verdict()

    withdrawn, found = perform(plot, scripts=LONG)
    assert withdrawn <= GRACE_S + KILL_S + LOGS_S
    assert found == []


@pytest.mark.parametrize("hosts", [[0], [1], [0, 1]], ids=str)
def test_attempts_ended_by_a_users_clean_are_no_failures_of_the_job(hosts: list[int]) -> None:
    async def plot(play: EngineHarness) -> tuple[list[str], list[str], int]:
        machines = await started(play)
        attempt = str(play.events("attempt.started")[0].facts["attempt"])
        for machine in (machines[number] for number in hosts):
            machine.handle_event(TasksCleaned((attempt,), "ended by herd clean of you@vm"))
            machine.processes[attempt].signal(TERM)
        assert await play.until(lambda: len(play.events("attempt.ended")) > 0, 300.0)
        end = play.events("attempt.ended")[0]
        assert await play.until(lambda: bool(play.events("slot.done")), 1800.0)
        slot = play.folded_history().slots["gpt-0"]
        return [str(end.facts["verdict"])], [str(end.facts["why"])], slot.failures

    verdict, why, failures = perform(plot, scripts={"*": Script(steps=60, on_term="die")})
    assert (verdict, failures) == (["stopped"], 0)
    assert "was ended by herd clean of you@vm" in why[0]
