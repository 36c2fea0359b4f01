"""Items of maps: what may be one, how commands get it, and what is shown of it."""

import re
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_schemas import SCHEMAS

from tpuherd.errors import InvalidInput
from tpuherd.history import apply_trial_events
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.sweep_trials import TrialRecord
from tpuherd.sweeps.map_items import (
    CHUNK,
    ITEM_BYTES_MAX,
    ITEMS_MAX,
    TOTAL_BYTES_MAX,
    check_items,
    item_events,
    items_digest,
    join_items,
    parse_items,
)
from tpuherd.sweeps.shell_item import insert_item
from tpuherd.sweeps.trial_env import launch_spec_for_item
from tpuherd.views.map_table import keep_failed, map_page, map_text
from tpuherd.views.printable import show_values

LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"))
WORD = "'\"$(rm -rf x); `y` \\ * {} \t"
#: Bad files, and what is said of them.
BAD = {
    b"": "f has no items",
    b"\n \n\t\n": "f has no items",
    b"a\n\xff": "f, line 2 is not UTF-8 text",
    b"a\n\n" + b"x" * (ITEM_BYTES_MAX + 1): "f, line 3 has 8,193 bytes",
    "\u20ac".encode() * ITEM_BYTES_MAX: "f, line 1 has 24,576 bytes",
    b"a\0b": "f, line 1 has a NUL character",
    b"x\n" * (ITEMS_MAX + 1): "f has 100,001 items",
    b"x" * (TOTAL_BYTES_MAX + 1): "f is larger than 16 MiB",
}


@given(st.lists(LINE, min_size=1))
def test_items_are_the_lines_of_a_file(lines: list[str]) -> None:
    there = tuple(line for line in lines if line.strip())
    for newline in ("\n", "\r\n"):
        content = newline.join(lines).encode()
        if not there:
            with pytest.raises(InvalidInput, match="has no items"):
                parse_items(content, "f")
        else:
            assert parse_items(content, "f") == parse_items(content + b"\n", "f") == there


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_a_bad_file_is_refused_by_its_first_bad_line(content: bytes) -> None:
    with pytest.raises(InvalidInput, match=re.escape(BAD[content])):
        parse_items(content, "f")


@pytest.mark.parametrize("items", [(), ("a", ""), ("a\nb",), ("\ud800",), ("x" * 9000,), (3,)])
def test_bad_items_of_a_program_are_refused(items: Any) -> None:
    with pytest.raises(InvalidInput):
        check_items(items)


@given(st.lists(LINE.filter(str.strip), min_size=1, max_size=3 * CHUNK, unique=False))
def test_the_log_holds_all_items(items: list[str]) -> None:
    found, digest = check_items(items), items_digest(items)
    events = list(item_events("gpt", found, digest, 1.0))
    others = list(item_events("gpt", ["another"], items_digest(["another"]), 2.0))
    assert join_items([*events, *others], digest) == dict(enumerate(items))


# ---- commands ------------------------------------------------------------------------------------


def launched(order: LaunchSpec, item: str) -> LaunchSpec:
    trial = TrialRecord(number=7, params={"item": item}, run="gpt-t7-abc", made_at=0.0, attempts=2)
    return launch_spec_for_item(order, trial)


def test_words_get_the_item_in_every_place_or_at_the_end() -> None:
    order = LaunchSpec(shell="", argv=("cmp", "{}", "old/{}"), env={"HERD_CHECKPOINT": "gs://b/x/"})
    assert launched(order, WORD).argv == ("cmp", WORD, f"old/{WORD}")
    assert launched(replace(order, argv=("cat",)), WORD).argv == ("cat", WORD)
    assert launched(order, WORD).trial == {
        "RUN_ID": "gpt-t7-abc",
        "HERD_RUN_ID": "gpt-t7-abc",
        "HERD_ATTEMPT": "2",
        "HERD_ITEM": WORD,
        "HERD_ITEM_NUMBER": "7",
        "HERD_CHECKPOINT": "gs://b/x/gpt-t7-abc",
    }


@given(LINE)
def test_shell_text_never_has_the_item_in_it(item: str) -> None:
    order = LaunchSpec(shell="cat {} | wc", argv=(), env={})
    assert launched(order, item).shell == 'cat "$HERD_ITEM" | wc'
    assert launched(replace(order, shell="cat"), item).shell == 'cat "$HERD_ITEM"'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('a "b {}" {}', 'a "b ${HERD_ITEM}" "$HERD_ITEM"'),
        ("a 'b {}'", "a 'b '\"$HERD_ITEM\"''"),
        ("a it\\'s {}", 'a it\\\'s "$HERD_ITEM"'),
        ("# don't\na {}", '# don\'t\na "$HERD_ITEM"'),
        ("a# 'x' {}", "a# 'x' \"$HERD_ITEM\""),
    ],
)
def test_the_item_respects_quotes(text: str, shown: str) -> None:
    assert insert_item(text) == shown


def test_a_job_keeps_its_map() -> None:
    sweep = {"method": "items", "items": "a" * 64, "trials": 3, "timeout": "90m", "keep": True}
    job = read_fields({"name": "gpt", "accelerator": "v4-8", "run": "true", "sweep": sweep})
    assert isinstance(job, JobSpec) and job.sweep is not None
    assert (job.sweep.timeout, job.sweep.keep, job.sweep.parameters) == (5400.0, True, {})
    assert job_document(job)["sweep"] == sweep


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"method": "items"}, "a map gets its items from `herd map"),
        ({"method": "items", "items": "x", "trials": 1}, "is not the digest"),
        ({"method": "grid", "parameters": {"a": [1]}, "keep": True}, "use `herd map`"),
    ],
)
def test_only_herd_map_writes_a_map(sweep: dict[str, Any], said: str) -> None:
    found = read_fields({"name": "gpt", "accelerator": "v4-8", "run": "true", "sweep": sweep})
    assert not isinstance(found, JobSpec)
    assert len(found) == 1 and said in found[0].sentence


# ---- what is shown -------------------------------------------------------------------------------

TEXTS = ("a", "b\x1b[2J", "c")


def told() -> list[HistoryEvent]:
    """Item 0 succeeds, 1 fails, 2 runs again elsewhere after it lost its node."""
    digest, events = items_digest(TEXTS), list[HistoryEvent]()

    def tell(kind: str, slot: str = "", **facts: Any) -> None:
        at = 10.0 * len(events)
        events.append(HistoryEvent(at=at, kind=kind, job="gpt", slot=slot, facts=facts))

    usage = {"failures": 0, "preemptions": 0, "stalls": 0, "saved": None, "since": None}
    tell("map.started", items=digest, count=3)
    events += item_events("gpt", TEXTS, digest, 0.0)
    for number in range(3):
        tell("trial.created", trial=number, params={"item": TEXTS[number]}, run_id=f"r{number}")
        tell("trial.assigned", f"gpt-{number}", trial=number, resumed=False, usage=usage)
        tell("attempt.launched", f"gpt-{number}", trial=number, attempt=f"gpt-{number}-a1-x",
             number=1, bid="b", code_digest="c")  # fmt: skip
    tell("trial.ended", "gpt-0", trial=0, outcome="complete", why="done")
    tell("trial.ended", "gpt-1", trial=1, outcome="failed", why="no", exit=3, lines=["x\x1b", "y"])
    tell("trial.waiting", "gpt-2", trial=2, usage=usage, why="it has no node")
    return events


def test_every_item_is_shown_with_its_result() -> None:
    page = map_page("gpt", told(), 500.0)
    assert page is not None
    jsonschema.validate(page, SCHEMAS["herd map status NAME --json"])
    assert [(one["text"], one["phase"], one["exit"]) for one in page["items"]] == [
        ("a", "complete", 0), ("b\x1b[2J", "failed", 3), ("c", "waiting", None),
    ]  # fmt: skip
    assert (page["total"], page["exit"]) == (3, None)
    text = map_text(show_values(page))
    assert "gpt: 2 of 3 items have ended: 1 complete, 1 failed, 1 waiting" in text
    assert "item 1 (b\\x1b[2J) failed with exit status 3:\n  x\\x1b\n  y" in text
    assert "\x1b" not in text
    assert [one["item"] for one in keep_failed(page)["items"]] == [1]
    assert map_page("gpt", told()[5:], 1.0) is None


def test_a_resumed_map_forgets_only_failures() -> None:
    events = told()
    sweep = apply_trial_events.build_sweep(events)
    assert (sweep.complete, sweep.failed, sweep.worst, len(sweep.unfinished)) == (1, (1,), 3, 1)
    facts = {"items": items_digest(TEXTS), "count": 3, "made": 3, "complete": 1, "again": [1, 2]}
    events.append(HistoryEvent(at=999.0, kind="map.started", job="gpt", facts=facts))
    sweep = apply_trial_events.build_sweep(events)
    assert (sweep.made, sweep.complete, sweep.failed, sweep.again) == (3, 1, (), (1, 2))
    page = map_page("gpt", events, 999.0)
    assert page is not None
    assert [(one["phase"], one["text"]) for one in page["items"]] == [
        ("complete", "a"), ("waiting", "b\x1b[2J"), ("waiting", "c"),
    ]  # fmt: skip
