"""Which notes events lead to: one for each thing that matters, few in a storm, never a secret."""

import json
import re
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.event_stories import START, StoryLog, nonsense, struck
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.model.receivers import Receiver, ReceiverKind, Topic
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.notify.choose_notes import READ_KINDS, read_event
from tpuherd.notify.compose import TOPIC_WORDS, compose_message
from tpuherd.notify.notes import JobFacts, JobMemory, Note, NotifyMemory, wants_note
from tpuherd.notify.outbox import (
    BRISK,
    GAP_S,
    NOTES_MAX,
    PATIENCE_S,
    REFUSED_S,
    Outbox,
    SendProblem,
    add_notes,
    due_at,
    mark_failed,
    mark_sent,
)
from tpuherd.notify.payloads import (
    HIDDEN,
    build_request,
    command_variables,
    hide_values,
    secret_parts,
)
from tpuherd.notify.timed_notes import timed_notes

ALL = Receiver()
SLOTS = ("gpt-0", "gpt-1", "gpt-2")


def told(
    events: list[HistoryEvent], slots: tuple[str, ...] = ("gpt-0",), **facts: Any
) -> list[Note]:
    """Return all notes of these events that one who wants everything gets."""
    memory, jobs = NotifyMemory(), {"gpt": JobFacts(job="gpt", slots=slots, **facts)}
    found = [
        note for seq, event in enumerate(events, 1) for note in read_event(memory, seq, event, jobs)
    ]
    return [note for note in found if wants_note(ALL, note)]


def event(kind: str, slot: str = "gpt-0", at: float = START, **facts: Any) -> HistoryEvent:
    return HistoryEvent(at=at, kind=kind, job="gpt", slot=slot, facts=facts)


def ended(verdict: Verdict, slot: str = "gpt-0", **facts: Any) -> HistoryEvent:
    return event("attempt.ended", slot, attempt="a", verdict=verdict.value, why="exit 1", **facts)


def test_every_topic_has_a_word_and_every_kind_exists() -> None:
    assert set(TOPIC_WORDS) == set(Topic)
    assert set(EVENT_KINDS) >= READ_KINDS


def test_a_job_of_one_slot_that_succeeds_is_told_once() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(5, step=0)
    story.end(Verdict.SUCCESS)
    story.tell("slot.done", why="attempt 1 has succeeded")
    story.tell("bid.withdrawn", bid=story.bid)
    (note,) = told(story.events, made_at=START, cost=1.5)
    assert note.topics == (Topic.DONE,)
    assert (note.title, note.text) == ("gpt is done", "gpt is done after 1 m 05 s, for $1.50.")


def test_copies_are_done_when_the_last_has_ended() -> None:
    events = [event("slot.done", slot, why="") for slot in SLOTS]
    assert told(events[:2], SLOTS) == []
    assert [note.title for note in told(events, SLOTS)] == ["gpt is done"]
    mixed = [*events[:2], event("slot.gave_up", "gpt-2", why="it failed 4 times")]
    (gave_up,) = told(mixed, SLOTS)
    assert gave_up.topics == (Topic.GAVE_UP, Topic.DONE)
    assert "gpt-2 gave up: it failed 4 times; 2 of 3 copies are done" in gave_up.text
    late = [event("slot.gave_up", "gpt-2", why="w"), *events[:2]]
    assert [note.topics for note in told(late, SLOTS)] == [(Topic.GAVE_UP,), (Topic.DONE,)]


def test_a_job_submitted_again_starts_anew() -> None:
    once = [event("job.submitted", ""), event("slot.done", why="")]
    assert [note.title for note in told(once + once)] == ["gpt is done"] * 2


def test_failures_are_told_by_growing_counts() -> None:
    notes = told([ended(Verdict.FAILURE) for _ in range(100)])
    assert len(notes) == 3 + 5, "1, 2, 3, 4, 8, 16, 32, 64"
    assert notes[0].title == "gpt failed" and notes[3].title == "gpt failed for the 4th time"
    assert "exit 1" in notes[0].text


def test_preemptions_are_told_each_nth_time_and_then_twice_as_rarely() -> None:
    memory, jobs = NotifyMemory(), {"gpt": JobFacts(job="gpt", slots=SLOTS)}
    notes = [
        note for seq in range(1, 61)
        for note in read_event(memory, seq, ended(Verdict.PREEMPTED, SLOTS[seq % 3]), jobs)
    ]  # fmt: skip
    counts = {n: [one.count for one in notes if wants_note(Receiver(preemptions=n), one)]
              for n in (1, 5)}  # fmt: skip
    assert counts == {1: [1, 2, 4, 8, 16, 32], 5: [5, 10, 20, 40]}
    assert not any(wants_note(Receiver(on=(Topic.DONE,)), one) for one in notes)


def test_trials_and_items_never_send_one_each() -> None:
    trials = [
        event("trial.ended", f"gpt-{n % 3}", trial=n, outcome="failed", why="exit 1")
        for n in range(5000)
    ]
    failures = [ended(Verdict.FAILURE, trial=n) for n in range(5000)]
    notes = told([*trials, *failures], SLOTS, sweep=True)
    assert [note.title for note in notes] == [
        "1 trial of gpt has failed",
        *(f"{many} trials of gpt have failed" for many in (10, 100, 1000)),
    ]


def test_a_map_tells_its_end_once() -> None:
    over = event("map.ended", "", complete=480, failed=20, exit=1, why="")
    events = [over, *(event("slot.done", slot, why="") for slot in SLOTS)]
    (note,) = told(events, SLOTS, sweep=True, items=True)
    assert note.topics == (Topic.DONE, Topic.FAILED)
    assert "480 items complete, 20 failed" in note.text


def test_a_lasting_refusal_is_told_once_a_day_until_a_grant() -> None:
    no: dict[str, Any] = {"bid": "b", "message": "Quota 'TPUS' exceeded"}
    refusals = [event("bid.refused", at=START + 300 * n, refusal="quota", **no) for n in range(500)]
    assert len(told(refusals)) == 2, "41 hours"
    again = [refusals[0], event("bid.granted", bid="b"), refusals[1]]
    assert len(told(again)) == 2
    assert told([event("bid.refused", refusal="stockout", **no)]) == []


def test_a_cost_limit_is_told_to_who_wants_ends_or_costs() -> None:
    (note,) = told([event("slot.gave_up", why="w", code="cost")], max_cost=100.0, cost=100.01)
    assert wants_note(Receiver(on=(Topic.COST,)), note)
    assert wants_note(Receiver(on=(Topic.GAVE_UP,)), note)
    assert "So far $100.01" in note.text
    why = "it has cost 100.01 dollars, the limit is 100.00"  # words without a code, as once stored
    (old,) = told([event("slot.gave_up", why=why)], max_cost=100.0, cost=100.01)
    assert old.topics[0] is Topic.GAVE_UP and Topic.COST not in old.topics


def test_what_is_of_no_job() -> None:
    orphan = {"bid": "old-0-g1-7kq", "zone": "z", "per_hour": 12.5}
    events = [
        HistoryEvent(at=START, kind="orphan.found", facts=orphan),
        HistoryEvent(at=START, kind="engine.problem", facts={"message": "no login"}),
        *(HistoryEvent(at=START, kind="engine.crashed", facts={"why": "killed", "count": n})
          for n in range(1, 9)),
    ]  # fmt: skip
    notes = told(events)
    assert [note.topics[0] for note in notes] == [Topic.ORPHAN, Topic.ENGINE, *[Topic.ENGINE] * 4]
    assert "costs $12.50 an hour" in notes[0].text


def test_nonsense_in_the_log_breaks_nothing() -> None:
    chance, memory = Random(7), NotifyMemory()
    for seq in range(5000):
        read_event(memory, seq, nonsense(chance, START + seq), {})
    assert set(memory.jobs) == {"gpt"}


# ---- time ----------------------------------------------------------------------------------------


def waits(
    memory: NotifyMemory, times: list[float], receiver: Receiver = ALL, **facts: Any
) -> list[str]:
    """Return what was told at each of these times."""
    jobs, marks = {"gpt": JobFacts(job="gpt", slots=SLOTS, **facts)}, dict[str, float]()
    found = []
    for at in times:
        notes, _ = timed_notes(memory, jobs, receiver, marks, START + at)
        found += [note.title for note in notes]
    return found


def test_a_long_wait_is_told_after_an_hour_then_two_then_four() -> None:
    story = struck()  # it ends with the loss of its node
    memory = NotifyMemory()
    for seq, one in enumerate(story.events):
        read_event(memory, seq, one, {})
    since = memory.jobs["gpt"].waits["gpt-0"] - START
    assert since == story.now - START, "since the loss, not since the submission"
    hours = [since + 3600 * h for h in range(10)]
    assert waits(memory, hours) == [
        f"gpt has waited for capacity for {hour} h 00 m" for hour in (1, 2, 4, 8)
    ]
    assert waits(memory, hours, Receiver(on=(Topic.DONE,))) == []
    assert len(waits(memory, hours, Receiver(waiting=60.0))) == 5, "those missed count once"
    read_event(memory, 99, event("bid.granted", bid="gpt-0-g2-7kq"), {})
    assert waits(memory, hours) == []


def test_a_replacement_for_a_node_that_runs_is_no_wait() -> None:
    memory = NotifyMemory()
    for seq, one in enumerate([
        event("bid.requested", bid="g1", generation=1, offer={}, nodes=1, node_digest=""),
        event("bid.granted", bid="g1"),
        event("bid.requested", bid="g2", generation=2, offer={}, nodes=1, node_digest=""),
    ]):  # fmt: skip
        read_event(memory, seq, one, {})
    assert memory.jobs["gpt"].waits == {}
    read_event(memory, 9, event("job.stopped", ""), {})
    read_event(memory, 10, event("bid.withdrawn", bid="g1"), {})
    assert memory.jobs["gpt"].waits == {}, "a stopped job waits for nothing"


def test_silent_hosts_are_told_once_after_five_minutes() -> None:
    memory = NotifyMemory()
    quiet: dict[str, Any] = {"bid": "gpt-0-g1", "state": "silent", "code": "silent", "since": START}
    read_event(memory, 1, event("bid.unhealthy", **quiet), {})
    assert waits(memory, [60, 299]) == []
    assert waits(memory, [300, 600, 7200]) == ["gpt has been silent for 5 m 00 s"]
    assert waits(memory, [300], Receiver(on=(Topic.STALLED,))) != []
    assert waits(memory, [300], Receiver(on=(Topic.DONE,))) == []
    for over in ("bid.withdrawn", "bid.healthy", "job.stopped"):
        known = deepcopy(memory)
        slot = "" if over == "job.stopped" else "gpt-0"
        read_event(known, 2, event(over, slot, bid="gpt-0-g1", code="silent"), {})
        assert waits(known, [300]) == []


def test_a_cost_near_its_limit_is_told_once() -> None:
    memory = NotifyMemory(jobs={"gpt": JobMemory()})
    said = waits(memory, [0, 60, 120], max_cost=100.0, cost=81.0)
    assert said == ["gpt has cost $81.00 of $100.00"]
    assert waits(memory, [0], max_cost=100.0, cost=79.0) == []
    assert waits(memory, [0], Receiver(cost=0.5), max_cost=100.0, cost=51.0) != []


# ---- outboxes ------------------------------------------------------------------------------------


def note(number: int = 0, topic: Topic = Topic.FAILED, **more: Any) -> Note:
    return Note(
        topics=(topic,), title=f"note {number}", text=f"text {number}", at=START, job="gpt", **more
    )


def test_a_quiet_receiver_is_told_after_seconds_and_a_busy_one_each_minute() -> None:
    box = Outbox(title="slack")
    add_notes(box, [note()], 100.0)
    assert due_at(box, 5.0, 100.0) == 105.0
    mark_sent(box, 1, 0, 105.0)
    assert due_at(box, 5.0, 106.0) > 1e300
    add_notes(box, [note(1)], 110.0)
    assert due_at(box, 5.0, 110.0) == 105.0 + GAP_S


def test_a_storm_becomes_a_few_messages() -> None:
    """Five notes a second for six hours."""
    box, messages, now, number = Outbox(title="slack"), 0, 0.0, 0
    while now < 21_600.0:
        add_notes(box, [note(number + n) for n in range(5)], now)
        number += 5
        if due_at(box, 5.0, now) <= now:
            message = compose_message(box, "o", now)
            assert len(message.text) < 1000 and len(message.notes) <= NOTES_MAX
            mark_sent(box, len(message.notes), message.more, now)
            messages += 1
        now += 1.0
    assert messages <= 6 * (BRISK + 1)
    assert len(box.pending) <= NOTES_MAX


def test_a_failing_receiver_is_tried_later_and_later_and_given_up() -> None:
    box, now, tries = Outbox(title="slack"), 0.0, 0
    add_notes(box, [note()], now)
    while not (lost := mark_failed(box, SendProblem(sentence="HTTP 503"), now)):
        tries += 1
        assert now < due_at(box, 5.0, now) <= now + 600
        now = due_at(box, 5.0, now)
    assert lost == 1 and PATIENCE_S <= now < PATIENCE_S + 600 and tries < 60
    assert (box.error, box.pending) == ("HTTP 503", [])
    add_notes(box, [note(1)], now + 7200)
    assert mark_failed(box, SendProblem(sentence="HTTP 503"), now + 7205) == 0, "tried afresh"
    mark_sent(box, 1, 0, now + 7300)
    assert (box.error, box.tries, box.failing_since) == ("", 0, None)


def test_a_refusing_receiver_is_given_up_soon_and_retry_after_is_honoured() -> None:
    box = Outbox(title="slack")
    add_notes(box, [note()], 0.0)
    final = SendProblem(sentence="HTTP 404", final=True)
    assert mark_failed(box, final, 5.0) == 0
    assert mark_failed(box, final, 5.0 + REFUSED_S) == 1
    add_notes(box, [note()], 1000.0)
    mark_failed(box, SendProblem(sentence="HTTP 429", retry_after_s=1800.0), 1000.0)
    assert due_at(box, 5.0, 1000.0) == 2800.0
    mark_failed(box, SendProblem(sentence="HTTP 429", retry_after_s=1e9), 2800.0)
    assert due_at(box, 5.0, 2800.0) == 2800.0 + 3600.0


# ---- messages ------------------------------------------------------------------------------------


def digest(*notes: Note, dropped: int = 0) -> Any:
    return compose_message(Outbox(pending=list(notes), dropped=dropped), "project p", START)


def test_a_single_note_is_sent_as_it_is_and_many_as_a_digest() -> None:
    assert (digest(note(3)).title, digest(note(3)).text) == ("note 3", "text 3")
    many = digest(*(note(n) for n in range(5)), note(9, Topic.DONE), dropped=7)
    assert many.title == "gpt: 5 failed, 1 done and 7 more"
    assert many.text.splitlines() == [
        "• text 0", "• text 1", "• text 2", "  … and 2 more of this kind", "• text 9",
        "… and 7 more notes that herd did not keep",
    ]  # fmt: skip
    assert digest(note(1)).id == digest(note(1)).id != digest(note(2)).id


def sent(kind: ReceiverKind, url: str, message: Any, token: str = "") -> tuple[str, Any]:
    request = build_request(kind, url, token, message)
    assert request.headers.get("Authorization") == (f"Bearer {token}" if token else None)
    return request.url, json.loads(request.body)


def test_each_kind_gets_its_own_shape() -> None:
    evil = Note(
        topics=(Topic.GAVE_UP,), title="<!channel> & @everyone", text='x"\n\x1b[31m\udcff',
        at=START, job="gpt", slot="gpt-0", seq=7,
    )  # fmt: skip
    url, content = sent(ReceiverKind.SLACK, "https://h/s", digest(evil))
    assert content["text"].startswith("*&lt;!channel&gt; &amp; @everyone*\n")
    _, content = sent(ReceiverKind.DISCORD, "https://h/d", digest(evil))
    assert content["allowed_mentions"] == {"parse": []} and len(content["content"]) <= 2000
    url, content = sent(ReceiverKind.NTFY, "https://ntfy.sh/my%20topic?x=1", digest(evil), "tk")
    assert (url, content["topic"], content["priority"]) == ("https://ntfy.sh/?x=1", "my topic", 4)
    _, content = sent(ReceiverKind.WEBHOOK, "https://h/w", digest(evil, note(2)))
    assert content["topics"] == ["gave_up", "failed"] and content["urgent"]
    assert content["events"][0] | {"text": ""} == {
        "topic": "gave_up", "title": evil.title, "text": "", "at": START, "job": "gpt",
        "slot": "gpt-0", "seq": 7,
    }  # fmt: skip
    assert command_variables(digest(evil))["HERD_EVENT"] == "gave_up"


@pytest.mark.parametrize("kind", [ReceiverKind.SLACK, ReceiverKind.DISCORD, ReceiverKind.NTFY])
def test_long_messages_are_cut(kind: ReceiverKind) -> None:
    long = [Note(topics=(topic,), title="t" * 500, text="x" * 600, at=START, job=f"j{n}")
            for n in range(20) for topic in Topic]  # fmt: skip
    _, content = sent(kind, "https://h/topic", digest(*long))
    assert len(json.dumps(content)) < 4500


def test_secrets_are_hidden_as_they_are_and_as_parts_of_an_address() -> None:
    url = "https://user:pass-word@hooks.slack.com/services/T0/B0/canary-token?k=canary%2Fq"
    hidden = [*secret_parts(url), "canary secret/x"]
    text = f"at {url}, canary-token, pass-word, canary secret/x and canary%20secret%2Fx"
    clean = hide_values(text, hidden)
    assert "canary" not in clean and "pass-word" not in clean and HIDDEN in clean
    assert hide_values("exit 1", ["exit", "1"]) == "exit 1", "short values are common words"


def test_the_page_says_of_every_topic_when_it_is_sent() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/notify.md").read_text()
    (table,) = re.findall(r"^\| topic \| when \|\n\|---\|---\|\n((?:\|.*\n)+)", page, re.M)
    assert re.findall(r"^\| `(\w+)` \| \w", table, re.M) == list(Topic)
