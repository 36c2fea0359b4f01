"""Messages of the real engine in virtual time: none is lost, and no receiver holds anything up."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_ports import EngineLife
from tests.simulated.engine_programs import Crash, Script
from tpuherd.jobfile.notify_fields import NOTIFY
from tpuherd.jobs.job_queries import why_as_json
from tpuherd.model.trouble import NOTIFY as MESSAGES
from tpuherd.notify.compose import Message
from tpuherd.notify.outbox import REFUSED_S, SendProblem
from tpuherd.notify.ready_receivers import ReadyReceiver
from tpuherd.store.notify_secrets import put_receivers
from tpuherd.store.notify_state import load_notify_state

QUICK = {"*": Script(steps=4, step_s=2.0, init_s=1.0, setup_s=1.0)}
CANARY = "https://hooks.slack.com/services/T0/B0/canary-address-of-slack"

Answer = Callable[[Message], Awaitable[SendProblem | None]]


class Inbox:
    """What the receivers of a test have got."""

    def __init__(self, play: EngineHarness, answer: Answer | None = None) -> None:
        self.play = play
        self.answer = answer
        self.messages: list[tuple[float, str, Message]] = []

    async def send(self, receiver: ReadyReceiver, message: Message) -> SendProblem | None:
        self.messages.append((self.play.sim.clock.now(), receiver.title, message))
        return None if self.answer is None else await self.answer(message)

    def titles(self) -> list[str]:
        return [message.title for _, _, message in self.messages]


def listen(play: EngineHarness, answer: Answer | None = None, **receiver: Any) -> Inbox:
    """Tell a receiver about all jobs."""
    inbox = Inbox(play, answer)
    play.send = inbox.send
    receivers = NOTIFY.read({"url": CANARY, **receiver}, lambda *_: None) or ()
    put_receivers(play.store.secrets, receivers, {"notify-0-url": CANARY})
    return inbox


async def never(message: Message) -> SendProblem | None:
    await asyncio.Event().wait()
    return None


def test_the_end_of_a_job_is_told_once_and_then_the_engine_rests() -> None:
    async def plot(play: EngineHarness) -> tuple[list[str], float]:
        inbox = listen(play)
        play.submit(SimJob())
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)
        assert await play.until(lambda: bool(play.events("engine.stopped")), 1800.0)
        done = play.events("slot.done")[0].at
        return inbox.titles(), inbox.messages[0][0] - done

    titles, seconds = perform(plot, scripts=QUICK)
    assert titles == ["gpt is done"]
    assert seconds <= 6.0


def test_a_receiver_that_never_answers_holds_nothing_up() -> None:
    async def plot(play: EngineHarness, answer: Answer | None) -> list[tuple[str, float]]:
        listen(play, answer)
        play.submit(SimJob(copies=2))
        assert await play.until(lambda: len(play.events("slot.done")) == 2, 3600.0)
        assert await play.until(lambda: len(play.events("bid.deleted")) >= 2, 3600.0)
        return [(event.kind, event.at) for event in play.events() if event.kind[:4] != "noti"]

    answering = perform(lambda play: plot(play, None), scripts=QUICK)
    hanging = perform(lambda play: plot(play, never), scripts=QUICK)
    assert hanging == answering, "each event at the same moment"


@pytest.mark.parametrize("place", ["after slot.done", "while sending"])
def test_a_killed_engine_loses_no_message(place: str) -> None:
    async def plot(play: EngineHarness) -> list[str]:
        killed = False

        async def answer(message: Message) -> SendProblem | None:
            nonlocal killed
            if place == "while sending" and not killed:
                killed = True
                play.kill()
                await asyncio.Event().wait()
            return None

        def at(life: EngineLife, where: str) -> None:
            nonlocal killed
            if where.startswith("after") and "slot.done" in where and not killed:
                killed = True
                life.die()

        inbox = listen(play, answer)
        if place == "after slot.done":
            play.at = at
        play.submit(SimJob())
        assert await play.until(lambda: play.lives > 1, 3600.0)
        await play.advance(300.0)
        done = [message.id for _, _, message in inbox.messages if message.title == "gpt is done"]
        assert killed and len(set(done)) == 1
        return done

    many = {"after slot.done": 1, "while sending": 2}[place]
    assert len(perform(plot, scripts=QUICK)) == many


def test_a_failing_receiver_is_shown_and_given_up_and_the_next_message_goes_out() -> None:
    async def plot(play: EngineHarness) -> None:
        works = False

        async def answer(message: Message) -> SendProblem | None:
            return None if works else SendProblem(sentence="HTTP 404", final=True)

        inbox = listen(play, answer)
        play.submit(SimJob())
        assert await play.until(lambda: len(inbox.messages) >= 3, 3600.0)
        await play.advance(10.0)
        (trouble,) = play.store.troubles.read()
        assert (trouble.source, trouble.sentence) == (
            MESSAGES,
            "slack at hooks.slack.com: HTTP 404",
        )
        assert await play.until(lambda: bool(play.events("notify.gave_up")), 2 * REFUSED_S)
        (lost,) = play.events("notify.gave_up")
        assert lost.facts["receiver"] == "slack at hooks.slack.com" and lost.facts["notes"] == 1
        assert len(inbox.messages) < 10
        works = True
        play.submit(SimJob(job="next"))
        assert await play.until(lambda: "next is done" in inbox.titles(), 7200.0)
        await play.advance(10.0)
        assert play.store.troubles.read() == []

    perform(plot, scripts=QUICK)


def test_a_sweep_whose_trials_all_fail_tells_little() -> None:
    async def plot(play: EngineHarness) -> list[str]:
        inbox = listen(play)
        play.submit(
            SimJob(copies=2, items=tuple(f"item {n}" for n in range(30)), limits={"failures": 0})
        )
        assert await play.until(lambda: bool(play.events("map.ended")), 7200.0)
        await play.advance(120.0)
        return inbox.titles()

    failing = {"*": replace(QUICK["*"], crashes={1: Crash(step=1)})}
    titles = perform(plot, scripts=failing)
    assert 0 < len(titles) <= 5, titles
    assert any("30 failed" in title for title in titles), titles


def test_no_file_but_the_secrets_has_the_address() -> None:
    async def plot(play: EngineHarness) -> None:
        async def answer(message: Message) -> SendProblem | None:
            return SendProblem(sentence="HTTP 503")

        inbox = listen(play, answer)
        play.submit(SimJob())
        assert await play.until(lambda: len(inbox.messages) >= 3, 3600.0)
        assert load_notify_state(Path(play.folder)) is not None
        found = [
            str(file.relative_to(play.folder))
            for file in Path(play.folder).rglob("*")
            if file.is_file() and b"canary" in file.read_bytes()
        ]
        assert found == ["secrets/.notify/notify-0-url"]

    perform(plot, scripts=QUICK)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_however_often_the_engine_is_killed_every_end_is_told(seed: int) -> None:
    """Receivers fail at random meanwhile, too."""

    async def plot(play: EngineHarness) -> tuple[set[str], int]:
        chance = Random(seed)

        async def answer(message: Message) -> SendProblem | None:
            await asyncio.sleep(chance.random() * 3)
            return SendProblem(sentence="HTTP 503") if chance.random() < 0.3 else None

        inbox = listen(play, answer, on=["done"])
        jobs = [f"job{letter}" for letter in "abcdef"]
        for job in jobs:
            play.submit(SimJob(job=job))
            for _ in range(chance.randrange(6)):
                await play.advance(chance.random() * 60)
                play.kill()
        assert await play.until(lambda: len(play.events("slot.done")) == len(jobs), 7200.0)
        assert await play.until(lambda: bool(play.events("engine.stopped")), 7200.0), "it rests"
        told = [note.job for _, _, message in inbox.messages for note in message.notes]
        assert set(told) <= set(jobs)
        return set(jobs) - set(told), play.lives

    missing, lives = perform(plot, scripts=QUICK)
    assert not missing and lives > 3


def test_commands_of_others_never_run_and_their_messages_wait_for_consent() -> None:
    mail = {"host": "mail.example.com", "to": "bob@example.com"}

    async def plot(play: EngineHarness) -> None:
        inbox = Inbox(play)
        play.send = inbox.send
        documents = [{"run": "touch here", "kind": "command"}, mail]
        play.submit(SimJob(job="bobs", notify=documents))
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)
        await play.advance(120.0)
        (told,) = play.events("notify.withheld")
        assert told.job == "bobs" and told.facts["receivers"] == [
            {"receiver": "command touch", "code": "command"},
            {"receiver": "email to bob@example.com", "code": "others"},
        ]
        rows = why_as_json(play.store, play.clock.now(), "bobs")["withheld"]
        assert "a command runs only in the account" in rows[0]["why"]
        assert "ann@box" in rows[1]["why"] and "herd notify allow" in rows[1]["why"]
        assert inbox.messages == []
        play.kill()  # the next engine does not repeat it
        await play.advance(120.0)
        assert len(play.events("notify.withheld")) == 1
        play.tells_others = True
        play.submit(SimJob(job="more", notify=documents))
        assert await play.until(lambda: bool(inbox.messages), 3600.0)
        assert {title for _, title, _ in inbox.messages} == {"email to bob@example.com"}
        (row,) = why_as_json(play.store, play.clock.now(), "bobs")["withheld"]
        assert row["code"] == "command"

    perform(plot, scripts=QUICK)
