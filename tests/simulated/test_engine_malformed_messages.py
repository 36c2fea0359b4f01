"""Malformed messages of hosts, once or repeatedly: the engine continues and reports them."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.hostile_words import mutate
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_hosts import Machine
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Script
from tpuherd_host.agent import frames
from tpuherd_host.agent.state_machine import messages

LONG = {"*": Script(steps=60, step_s=5.0)}
ATTEMPT = "gpt-0-a1-7kq"
SAID: dict[str, dict[str, Any]] = {
    "no event": {},
    "an event that is no word": {"event": [1, 2]},
    "a step of 400 digits": {
        "event": "step", "attempt": ATTEMPT, "report": {"step": 10**400, "loss": 10**400},
    },
    "a list for a report": {"event": "step", "attempt": ATTEMPT, "report": [1]},
    "an attempt that is a path": {
        "event": "attempt", "id": "../../../x", "kind": "attempt", "phase": "running",
        "slot": "gpt-0",
    },
    "an attempt of no shape": {"event": "attempt", "id": 7, "kind": {}, "slot": "gpt-0"},
    "an end at no time": {
        "event": "ended", "id": ATTEMPT, "kind": "attempt", "phase": "ended", "slot": "gpt-0",
        "ended": "yesterday",
    },
    "a notice of no kind": {"event": "notice", "what": ["preempted"], "value": {}},
    "a heartbeat of numbers": {"event": "heartbeat", "attempts": [1, 2, 3]},
}  # fmt: skip


def say(machine: Machine, content: dict[str, Any]) -> None:
    """As if its agent had sent it."""
    for line in machine.lines.values():
        line.down.send(frames.pack_json(frames.EVENT, 0, content))


@pytest.mark.parametrize("what", SAID)
def test_no_malformed_agent_message_ends_the_engine(what: str) -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        machines = play.sim.machines()
        for machine in machines:
            say(machine, SAID[what])
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)
        assert (play.lives, play.troubles) == (1, [])
        told = play.events("host.invalid_data")
        assert {event.facts["host"] for event in told} == {one.name for one in machines}
        assert all("invalid data" in event.facts["why"] for event in told)
        assert {event.slot for event in told} == {"gpt-0"}
        logs = {path.name for path in (play.folder / "logs").iterdir()}
        assert logs == {ATTEMPT, "gpt-0-g1-7kq-setup-102952-0"}
        assert not list(play.folder.parent.glob("x"))

    perform(plot, scripts=LONG)


def test_a_datagram_with_a_loss_of_400_digits_is_harmless() -> None:
    async def plot(play: EngineHarness) -> tuple[int, list[str]]:
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        said = json.loads(f'{{"attempt": "{ATTEMPT}", "loss": {"7" * 400}}}')
        play.sim.machines()[0].handle_event(messages.StepReported(said))
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)
        assert play.troubles == []
        return play.lives, [str(one.facts["problem"]) for one in play.events("host.invalid_data")]

    lives, what = perform(plot, scripts=LONG)
    assert (lives, what) == (1, ["loss in the report of a script"])


@pytest.mark.parametrize("seed", range(3))
def test_malformed_events_of_one_job_do_not_keep_the_engine_from_another(seed: int) -> None:
    """Events as a member of a lab could write them: those of the job itself, each altered."""
    dice = Random(seed)

    async def plot(play: EngineHarness) -> None:
        for job in ("bad", "gpt"):
            play.submit(SimJob(job=job, zones=("us-east5-a",), copies=2))
        for kind in ("bid.granted", "attempt.started", "attempt.ended"):
            assert await play.until(lambda of=kind: bool(play.events(of)), 3600.0)  # type: ignore[misc]
            mine = [one for one in play.events() if one.job == "bad"]
            altered = [(one, mutate(one.facts, dice)) for one in mine for _ in range(9)]
            play.store.append_events(
                [replace(one, facts=facts) for one, facts in altered if isinstance(facts, dict)]
            )
            play.kill()  # the next one reads it all
        done = {"gpt-0", "gpt-1"}
        assert await play.until(lambda: done <= {e.slot for e in play.events("slot.done")}, 7200.0)
        assert play.troubles == []
        assert {one.facts["attempt"] for one in play.events("attempt.launched")
                if one.job == "gpt"} == {"gpt-0-a1-7kq", "gpt-1-a1-7kq"}  # fmt: skip

    perform(plot, scripts=LONG)


def test_an_unexpected_error_is_an_error_of_its_host() -> None:
    async def plot(play: EngineHarness) -> tuple[int, list[str], list[str]]:
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        assert play.engine is not None
        watch = next(iter(play.engine._gang_client._watches.values()))[0]
        broken = watch._take_event

        def break_once(*told: Any) -> None:
            watch._take_event = broken  # type: ignore[method-assign]
            raise ZeroDivisionError("nobody has thought of this")

        watch._take_event = break_once  # type: ignore[method-assign,assignment]
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)
        ended = [str(one.facts["verdict"]) for one in play.events("attempt.ended")]
        return (
            play.lives,
            ended,
            [str(one.facts["error"]) for one in play.events("host.unexpected_error")],
        )

    lives, ended, what = perform(plot, scripts=LONG)
    assert (lives, ended) == (1, ["success"])
    assert what == ["ZeroDivisionError: nobody has thought of this"]
