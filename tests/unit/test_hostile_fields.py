"""Hostile words in every place of every job field: refused in a sentence, or kept and harmless.

The places come from the table of fields, by its examples: a new field is covered by itself.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hostile_words import WORDS, nest_value
from tests.unit.event_stories import struck
from tests.unit.test_printable import acts
from tpuherd.checks.expectations import describe_job
from tpuherd.clock import WallClock
from tpuherd.commands.multi_host_run import is_not_started
from tpuherd.engine.desired_slots import build_desired_state
from tpuherd.engine.event_log import EventLog
from tpuherd.errors import HerdError
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.job_diff import diff_documents
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields, read_job
from tpuherd.jobs import cost_queries, job_queries, project_metrics, receiver_list, sweep_queries
from tpuherd.jobs.live_view import LiveView
from tpuherd.jobs.secret_values import SecretMissing, decode_secret
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Offer
from tpuherd.model.stored_job import StoredJob
from tpuherd.notify.choose_notes import read_event
from tpuherd.notify.notes import NotifyMemory
from tpuherd.ssh_config.host_names import list_job_names
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.event_lines import event_json, event_line
from tpuherd.views.printable import json_text, show_lines

SENTENCE_MAX = 1000
LEAST = {"name": "gpt", "accelerator": "v4-32"}
#: What else a field needs.
BESIDE: dict[str, dict[str, Any]] = {
    "requirements": {"workdir": "."}, "reservation": {"tier": "reserved"},
    "data_disks": {"zones": "us-central2-b"}, "sweep": {"run": "true"},
}  # fmt: skip
#: These are never texts that a program or a file could take.
NEVER = ("nul", "half", "bytes")


def hostile_values(value: Any, word: str) -> Iterator[Any]:
    """The value with the word at each place: as a whole, as a part, as a name, as an item."""
    if isinstance(value, dict):
        for name, below in value.items():
            rest = {one: it for one, it in value.items() if one != name}
            yield from ({**value, name: odd} for odd in hostile_values(below, word))
            yield {**rest, word: below}
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from ([*value[:at], odd, *value[at + 1 :]] for odd in hostile_values(below, word))
    else:
        yield word
        yield f"{value}{word}"
        yield [value, word]
        yield {word: value}


def read_hostile(field: str, value: Any) -> JobSpec | None:
    """The job; None where it is refused, as it should be."""
    found = read_fields({**LEAST, **BESIDE.get(field, {}), field: value})
    if isinstance(found, JobSpec):
        return found
    for mistake in found:
        line = mistake.format_line("job.yaml")
        assert len(mistake.sentence) <= SENTENCE_MAX, line[:SENTENCE_MAX]
        assert not acts(show_lines(line))
        assert "\n" not in mistake.sentence, mistake.sentence
    return None


@pytest.mark.parametrize("field", FIELDS)
def test_hostile_words_are_refused_or_kept_as_they_are(field: str) -> None:
    example = yaml.safe_load(FIELDS[field].example)
    for kind, word in WORDS.items():
        for value in hostile_values(example, word):
            job = read_hostile(field, value)
            if job is None:
                continue
            document = job_document(job)
            assert kind not in NEVER or word not in json.dumps(document, ensure_ascii=False), value
            assert read_fields(json.loads(json.dumps(document))) == job
            lines = diff_documents(LEAST, document).lines
            assert not acts(show_lines("\n".join(lines)))
            assert not acts(json_text(document))


def test_a_stored_job_and_its_events_come_back_as_they_were(tmp_path: Path) -> None:
    """Whatever words are in them, also from hosts."""
    store = Database(tmp_path, 1.0)
    words = {name: word for name, word in WORDS.items() if name != "long"}
    job = StoredJob(
        job="gpt", goal=Goal.RUN, document={"env": words}, made_at=1.0, changed_at=1.0, who="'; --"
    )
    event = HistoryEvent(at=1.0, kind="host.invalid_data", job="gpt", facts={"why": words})
    store.put_job(job, [event])
    store.troubles.record_trouble("cloud", "".join(words.values()), now=1.0)
    assert store.stored_jobs()["gpt"].document == {"env": words}
    assert [one for _, one in store.read_events()] == [event]
    assert store.find_job("x'; DROP TABLE jobs; --") is None
    assert [one for _, one in store.read_events(job="x' OR '1'='1")] == []
    store.close()


@pytest.mark.parametrize("field", FIELDS)
def test_values_without_end_are_refused(field: str) -> None:
    """Python prints no number of thousands of digits, and follows no thousand lists in lists."""
    for endless in (1 << 20_000, nest_value(450, named=True), nest_value(900, named=False)):
        for value in (endless, [endless], {"a": endless}):
            assert read_hostile(field, value) is None


@pytest.mark.parametrize("word", [word for word in WORDS.values() if len(word) < 1000])
def test_a_hostile_file_is_read_in_bounded_time(word: str) -> None:
    for text in (word * 100, f"name: {word}", f"{word}: gpt", f"env: {{A: {word}}}", f"- {word}"):
        found = read_job(text)
        assert isinstance(found, list)
        assert all(len(mistake.sentence) <= SENTENCE_MAX for mistake in found)


def test_a_file_that_grows_without_end_is_refused() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    begun = time.process_time()
    (mistake, *_) = found = read_job(bomb)  # type: ignore[misc]
    assert "more than 20000 values" in mistake.sentence, found
    assert isinstance(read_job("[" * 50_000), list)
    assert isinstance(read_job("a: " * 5_000), list)
    merged = "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 12)
    )
    assert isinstance(read_job(merged), list)
    assert isinstance(read_job(f"name: gpt\naccelerator: v4-8\ncopies: 0x{'f' * 9_000}"), list)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe", b"", b"x" * 100_000])
def test_a_secret_that_is_no_text_is_refused_without_showing_it(content: bytes) -> None:
    with pytest.raises(SecretMissing) as refused:
        decode_secret(content, "key")
    assert len(str(refused.value)) < 100


# ---- rows of the store ---------------------------------------------------------------------------

GOOD, BAD = "gpt", "bad"
#: Facts as they are, by name.
FACTS: dict[str, Any] = {
    "bid": "bad-0-g1-7kq", "attempt": "bad-0-a1-7kq", "generation": 1, "nodes": 1, "number": 1,
    "offer": asdict(Offer(zone="z", type="v4-8", runtime="r", tier="spot", price=1.0)),
    "refusal": "stockout", "verdict": "failure", "goal": "run", "hosts": [], "lines": ["x"],
    "receivers": [], "trial": 0, "params": {"lr": 0.1}, "usage": {}, "value": 1.0, "items": "d",
    "texts": ["a"], "count": 2, "outcome": "failed", "startup": {}, "again": [0], "boots": [],
    "code": "silent", "step": 3, "exit": 1, "finding": "oom", "prepared_on": [],
    "node": "n", "weight": 1.0, "grace_s": 1.0, "dollars": 1.0, "first": 0, "complete": 1,
    "failed": 1, "since": 1.0, "per_hour": 1.0, "made": 1, "faults": 1, "sends": 1,
    "paused_s": 1.0, "resumed": 0, "saved": 1,
}  # fmt: skip
#: One of each type that JSON has, and the worst of each.
ODD: tuple[Any, ...] = (None, True, 2**64, 10**400, float("nan"), inf, "0", WORDS["half"], [],
                        [[None]], {"": None})  # fmt: skip
EACH = ("startup", "lines", "boots", "last_at", "saved", "step", "exit", "goal", "since", "hosts",
        "ready_at", "save_took_s", "again", "prepared_on", "finding", "code",
        "per_hour")  # fmt: skip


def good_facts(kind: str) -> dict[str, Any]:
    named = (*EVENT_KINDS[kind].facts, *EACH)
    facts = {name: FACTS.get(name, 1.0 if name.endswith(("_at", "_s")) else "x") for name in named}
    return facts | ({"hosts": 1} if kind == "checkpoint.fetched" else {})


def alter_facts(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The facts with one missing, or with each other value in its place or in a field of it."""
    for name in sorted({*facts, "why"}):
        rest = {other: value for other, value in facts.items() if other != name}
        yield rest
        yield from ({**rest, name: value} for value in ODD)
        below = facts.get(name)
        for field in below if isinstance(below, dict) else ():
            yield from ({**rest, name: {**facts[name], field: value}} for value in ODD)


def bad_event(kind: str, facts: dict[str, Any]) -> HistoryEvent:
    slot = "" if kind.partition(".")[0] in ("job", "map", "engine", "store") else "bad-0"
    return HistoryEvent(at=time.time(), kind=kind, job=BAD, slot=slot, facts=facts)


def stored(job: str, document: dict[str, Any] | None = None) -> StoredJob:
    now = time.time()
    document = document or {"name": job, "accelerator": "v4-8", "run": "true"}
    return StoredJob(job=job, goal=Goal.RUN, document=document, made_at=now, changed_at=now)


def read_all(store: Database) -> Any:
    """What commands, the page and the engine read, of all jobs; returns what is of the good one."""
    now = time.time()
    log = EventLog(store, 0, lambda *_: None)
    log.read()
    store.save_history(log.last_read, b"")
    memory, events = NotifyMemory(), list(store.read_events())
    notes = [read_event(memory, seq, one, {}) for seq, one in events]
    assert json_text([event_json(seq, one) for seq, one in events])
    assert all(event_line(one) for _, one in events)
    view = LiveView(store, SampleStore(store.folder), WallClock())
    view.refresh()
    jobs = store.stored_jobs()
    desired = build_desired_state(jobs, Allowance(everything=True), owner="7kq")
    assert list(list_job_names(jobs.values())) and receiver_list.receiver_rows(store) is not None
    assert all(describe_job(one, over=False) for one in jobs.values())
    assert job_queries.no_node_messages(store, now) and job_queries.capacity_page(store, now)
    project_metrics.project_metrics(store, now)
    for name in [*sorted({*jobs} - {GOOD}), GOOD]:
        page: list[Any] = [view.build_job_page(name), job_queries.job_status(store, now, name)]
        why = job_queries.why_as_json(store, now, name)
        for read in READS:
            with suppress(HerdError):
                page.append(read(store, now, name))
        json_text([page, why])
    rows = {row["job"]: row["phase"] for row in job_queries.job_rows(store, now)}
    shown = {row["job"]: row["phase"] for row in view.build_overview()["jobs"]}
    assert cost_queries.all_costs(store, now, 2) and rows == shown
    good = log.history.slots["gpt-0"], rows[GOOD], why["findings"], why["slots"]
    return good, [one for one in desired.desired_slots.slots if one.startswith(GOOD)], notes[:9]


def filled(folder: Path, bad: Sequence[HistoryEvent] = ()) -> Database:
    """A store with a good job, and one with these events."""
    store = Database(folder, time.time())
    store.put_job(stored(GOOD), STORY)
    store.put_job(stored(BAD), [bad_event("job.submitted", {}), *bad])
    return store


READS: tuple[Callable[[Database, float, str], Any], ...] = (
    cost_queries.job_cost, job_queries.map_status, sweep_queries.sweep_status,
)  # fmt: skip
STORY = struck(finding="oom", lines=["x"], host="w0", exit=1).events
BEFORE = ("bid.requested", "bid.granted", "bid.ready", "attempt.launched", "attempt.started",
          "map.started", "trial.created", "trial.assigned")  # fmt: skip


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_an_event_of_malformed_facts_is_the_trouble_of_its_job(tmp_path: Path, kind: str) -> None:
    with closing(filled(tmp_path / "good")) as store:
        truth = read_all(store)
    before = [bad_event(one, good_facts(one)) for one in (*BEFORE, kind)]
    with closing(filled(tmp_path / "sound", before)) as store:
        assert read_all(store) == truth and not store.troubles.read()
    altered = [bad_event(kind, one) for one in alter_facts(good_facts(kind))]
    with closing(filled(tmp_path / "altered", [*before, *altered])) as store:
        assert read_all(store) == truth
        (trouble,) = store.troubles.read()
        assert " of bad: it is left out" in trouble.sentence


ROWS: dict[str, list[Any]] = {
    "goal": ["nonsense", ""], "made_at": [inf, -1.0, 1e300], "changed_at": [inf, 1e18],
    "job": ["../../bad", "", "a b", ".."], "revision": [2**62], "who": list(WORDS.values()),
    "snapshot": ["../../x"], "document": ["null", "[]", '"x"', "{", "[" * 99_999, "9" * 5_000],
}  # fmt: skip


@pytest.mark.parametrize("place", [*FIELDS, *ROWS])
def test_a_malformed_job_is_the_only_one_that_is_left_alone(tmp_path: Path, place: str) -> None:
    """In a file of our own, a row that can't be read is damage: see tests/conformance."""
    store = filled(tmp_path)
    store.malformed.shared = True
    truth = read_all(store)
    for number, value in enumerate(ROWS.get(place, ["", 0, 1.5, *ODD])):
        name = f"bad{number}"
        document = {**stored(name).document, place: value}
        store.put_job(stored(name, document), [])
        if place in ROWS:
            with sqlite3.connect(tmp_path / "store.db") as connection:
                said = value.encode(errors="replace").decode() if isinstance(value, str) else value
                connection.execute(f"UPDATE jobs SET {place} = ? WHERE job = ?", (said, name))
    assert read_all(store) == truth
    if place in ("goal", "document", "made_at", "copies"):
        (trouble,) = store.troubles.read()
        assert "of the job bad" in trouble.sentence
    store.close()


def test_an_answer_about_a_command_may_be_anything() -> None:
    waits = {"id": "a", "phase": "starting"}
    for commands, waiting in (
        ([waits], True), ([7, None, waits], True), ([{**waits, "id": "b"}], False), ([], False),
        ([{"id": "a", "phase": ["starting"]}], False), ("a", False), (7, False), (None, False),
        ([{"id": ["a"]}], False), (waits, False),
    ):  # fmt: skip
        assert is_not_started({"commands": commands}, "a") is waiting
    assert not is_not_started({}, "a")
