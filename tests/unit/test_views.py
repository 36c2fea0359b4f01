"""What reading commands show: the right words and figures, and JSON that fits its schema."""

import json
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.unit.event_stories import PRICE, SLOT, START, StoryLog, started, struck
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import GoodputState
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.top.tree_rows import build_rows
from tpuherd.views.capacity_table import capacity_rows, capacity_text
from tpuherd.views.event_lines import event_json, event_line
from tpuherd.views.format_text import format_money, format_share, format_span, format_table
from tpuherd.views.job_pages import job_text, jobs_text, why_text
from tpuherd.views.job_rows import WORDS, StoreView, job_page, job_row, job_slot_names
from tpuherd.views.job_screens import jobs_screen
from tpuherd.views.overview_rows import overview_slot_row
from tpuherd.views.slot_pictures import timeline_lines

DOCUMENT = {"name": "gpt", "accelerator": "v4-32", "tier": "spot", "run": "python train.py"}


def stored_job(**changed: Any) -> StoredJob:
    usual = StoredJob(job="gpt", goal=Goal.RUN, document=DOCUMENT, made_at=START, changed_at=START)
    return replace(usual, who="ann@desk", **changed)


def scene(story: StoryLog, **changed: Any) -> StoreView:
    usual = StoreView(
        now=story.now,
        stored_jobs={"gpt": stored_job()},
        accounts=build_accounts(story.events, story.now),
        states={SLOT: "attempt 2 has run for 1 min"},
        engine=True,
    )
    return replace(usual, **changed)


def fits(command: str, content: Any) -> None:
    jsonschema.validate(json.loads(json.dumps(content)), SCHEMAS[command])


def preempted() -> StoryLog:
    """A job that lost its node once and runs again."""
    story = struck(host="gpt-0-g1-7kq/w3", exit=137, lines=["saving", "killed"])
    story.get(50, 20, 30)
    story.launch(10, step=101, resumed=100)
    story.wait(60, GoodputState.PRODUCTIVE)
    return story


def test_every_state_has_a_word() -> None:
    assert set(WORDS) == set(GoodputState)


def test_a_row_of_ls() -> None:
    row = job_row(scene(preempted()), "gpt")
    fits("herd ls --json", [row])
    assert (row["phase"], row["ready"], row["slots"], row["attempt"]) == ("running", 1, 1, 2)
    assert (row["zones"], row["type"]) == (["z"], ["v4-32"])
    assert row["goodput"] == pytest.approx(160 / 378)
    assert row["cost"] == pytest.approx((30 + 5 + 143) + (30 + 10 + 60))
    head, line_ = jobs_text([row]).splitlines()
    assert head.split() == ["JOB", "PHASE", "READY", "WHERE", "ATTEMPT", "AGE", "GOODPUT", "COST",
                            "PER", "HOUR"]  # fmt: skip
    assert line_.split("  ")[0] == "gpt"
    assert "42.3 %" in line_
    assert f"${PRICE:,.2f}" in line_


def test_no_surface_shows_a_goodput_of_a_script_that_reports_no_steps() -> None:
    story = started()
    story.wait(60, GoodputState.UNREPORTED)
    view = scene(story)
    why = "unknown: the script reports no steps"
    row, page = job_row(view, "gpt"), job_page(view, "gpt", ["gpt-0"])
    fits("herd ls --json", [row])
    fits("herd status NAME --json", page)
    (slot,) = page["slot_details"]
    overview = overview_slot_row(view, "gpt-0")
    for one in (row, page, slot, overview):
        assert (one["goodput"], one["goodput_why"], one["phase"]) == (None, why, "running")
    bars = timeline_lines([view.accounts["gpt-0"]], {}, colour=False, width=90)
    screen = jobs_screen([row], colour=False, width=120)
    assert all("unknown" in text for text in (jobs_text([row]), screen, next(bars)))
    assert f"  goodput {why}\n" in job_text(page)
    (first,) = build_rows({"jobs": [{**row, "slot_rows": [overview]}], "nodes": []}, ())
    assert first.goodput == "unknown"


def test_ls_without_jobs() -> None:
    assert jobs_text([]) == "No jobs. Start one with `herd run`."


def test_all_wanted_and_leaving_slots_are_counted() -> None:
    story = preempted()
    document = {**DOCUMENT, "copies": 3}
    three = scene(story, stored_jobs={"gpt": stored_job(document=document)})
    assert job_slot_names(three, "gpt") == ("gpt-0", "gpt-1", "gpt-2")
    row = job_row(three, "gpt")
    assert (row["phase"], row["ready"], row["slots"]) == ("1 running, 2 waiting", 1, 3)
    none = scene(story, stored_jobs={"gpt": stored_job(document={**DOCUMENT, "copies": 0})})
    assert job_slot_names(none, "gpt") == ("gpt-0",)  # scaled away, and still there
    story.tell("job.removed", slot="")
    gone = scene(story, stored_jobs={})
    row = job_row(gone, "gpt")
    fits("herd ls --json", [row])
    assert (row["goal"], row["phase"], row["slots"], row["ready"]) == ("removed", "leaving", 0, 1)


def test_status_shows_attempts_losses_and_times() -> None:
    page = job_page(scene(preempted()), "gpt", ["gpt-0", "gpt-1"])
    fits("herd status NAME --json", page)
    slot = page["slot_details"][0]
    assert [one["verdict"] for one in slot["attempts"]] == ["preempted", None]
    assert slot["attempts"][0]["first_failing"] == "gpt-0-g1-7kq/w3"
    assert slot["recoveries"][0]["steps_lost"] == 40
    assert sum(slot["seconds"].values()) == 378
    text = job_text(page)
    for said in (
        "gpt: v4-32 spot, 1 of 1 ready, submitted 6 m 18 s ago by ann@desk",
        "python train.py",
        "gpt-0: attempt 2 has run for 1 min",
        "gpt-0-g2-7kq  z  v4-32 spot  ready for 1 m 40 s, $3,600.00 per hour",
        "1  z  preempted after 2 m 28 s, steps 0 to 140: preempted",
        "first failing host: gpt-0-g1-7kq/w3, exit 137",
        "| killed",
        "2  z  runs after 1 m 10 s, steps 100 to 101",
        "recovered after 1 m 53 s: detect 3.0 s, queue 50 s, provision 20 s, setup 30 s, start 10",
        "40 steps lost",
        "work that counts",
        "gpt-1: waiting",
    ):
        assert said in text, said


def test_startup_times_are_shown_separately() -> None:
    story = struck()
    story.get(50, 20, 30)
    parts = {"python_s": 0.4, "import_s": 3.1, "meet_s": 1.2, "compile_s": 2.0, "first_step_s": 0.3}
    story.launch(10, step=101, resumed=100, restore_s=2.5, startup=parts)
    page = job_page(scene(story), "gpt", ["gpt-0"])
    fits("herd status NAME --json", page)
    shown = (
        "Python 0.4 s, imports 3.1 s, meeting the other processes 1.2 s,"
        " reading the checkpoint 2.5 s, compiling 2.0 s, the first step 0.3 s"
    )
    text = job_text(page)
    assert f"startup: {shown}" in text
    first = "Python 0.4 s, imports 3.1 s, meeting the other processes 1.2 s"
    assert f"start 5.2 s ({first}), restore 2.5 s, compile 2.3 s" in text
    assert f"startup: {shown}" in text
    assert page["slot_details"][0]["recoveries"][0]["startup"] == {
        "python_s": 0.4, "import_s": 3.1, "meet_s": 1.2, "restore_s": 2.5, "compile_s": 2.0,
        "first_step_s": 0.3,
    }  # fmt: skip


def test_the_best_checkpoint_and_the_newest_milestone_are_shown() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(5, step=0)
    assert "checkpoints:" not in job_text(job_page(scene(story), "gpt", ["gpt-0"]))
    story.tell("attempt.saved", attempt=story.attempt, step=100, best_step=60)
    story.wait(100, GoodputState.PRODUCTIVE)
    story.end(Verdict.STOPPED, step=1240, saved=1240, best_step=1100, milestone=1000)
    page = job_page(scene(story), "gpt", ["gpt-0"])
    fits("herd status NAME --json", page)
    assert "  checkpoints: newest 1240, best 1100, milestone 1000\n" in job_text(page)


def test_an_unhealthy_node_is_called_unhealthy() -> None:
    story = StoryLog()
    story.ask()
    story.wait(10, GoodputState.QUEUE_FIRST)
    story.tell("bid.granted", bid=story.bid)
    story.tell("bid.unhealthy", bid=story.bid, state="UNHEALTHY_TPU")
    story.wait(60, GoodputState.PROVISION)
    assert job_row(scene(story), "gpt")["phase"] == "unhealthy"
    text = job_text(job_page(scene(story), "gpt", ["gpt-0"]))
    assert "unhealthy (UNHEALTHY_TPU) for 1 m 00 s" in text
    story.tell("bid.healthy", bid=story.bid)
    assert job_row(scene(story), "gpt")["phase"] == "booting"


def test_why_folds_slots_in_the_same_state() -> None:
    said = {"gpt-0": "waits for capacity", "gpt-1": "waits for capacity", "gpt-2": ""}
    cause = {"id": "disk-full", "cause": "a disk is full", "fix": "clean it"}
    content = {"slots": said, "findings": {"gpt-0": cause, "gpt-1": cause}, "withheld": []}
    text = why_text(content, current=False)
    assert text.splitlines() == [
        "gpt-[0-1]: waits for capacity",
        "  cause: a disk is full (disk-full)",
        "  fix: clean it",
        "gpt-2: the engine has not looked at it yet",
        "No engine is running, so this may be out of date. Start one with `herd engine start`.",
    ]


@pytest.mark.parametrize(
    ("kind", "facts", "said"),
    [
        ("bid.lost", {"bid": "b", "cause": "preempted", "why": "b was preempted 2 s ago"},
         "bid.lost  b preempted: b was preempted 2 s ago"),
        ("bid.requested", {"bid": "b", "offer": {"zone": "z", "type": "t", "tier": "spot"}},
         "bid.requested  b"),
        ("bid.refused", {"bid": "b", "refusal": "stockout", "message": "no\nmore", "why": "more"},
         "bid.refused  b stockout: no more"),
        ("attempt.ended", {"attempt": "a", "verdict": "failure", "host": "h", "exit": 1},
         "attempt.ended  a failure h exit 1"),
        ("attempt.ended", {"attempt": "a", "verdict": "failure", "host": "h", "exit": 1,
                           "why": "h exited with 1: all is lost"},
         "attempt.ended  a failure: h exited with 1: all is lost"),
        ("attempt.ended", {"attempt": "a", "verdict": "lost", "exit": None, "host": ""},
         "attempt.ended  a lost"),
        ("slot.done", {"why": "it succeeded"}, "slot.done  it succeeded"),
        ("job.changed", {"difference": ["copies: 1 → 2", "env"]},
         "job.changed  copies: 1 → 2; env"),
        ("from.newer", {"x": 1}, "from.newer"),
        ("engine.started", {"pid": 7, "host": "desk", "epoch": 1}, "engine.started  pid 7 on desk"),
        ("engine.started", {"epoch": 1}, "engine.started"),
        ("attempt.launched", {"attempt": "a"}, "attempt.launched  a"),
        ("engine.crashed", {"why": "it was killed"}, "engine.crashed  it was killed"),
        ("bid.lost", {"bid": "{0}", "cause": "{x}"}, "bid.lost  {0} {x}"),
    ],
)  # fmt: skip
def test_an_event_is_one_line(kind: str, facts: dict[str, Any], said: str) -> None:
    assert event_line(HistoryEvent(at=START, kind=kind, facts=facts)) == said


def test_events_fit_their_schema_and_no_fact_hides_a_column() -> None:
    for seq, event in enumerate(preempted().events):
        fits("herd events --json", event_json(seq, event))
    odd = HistoryEvent(
        at=START, kind="bid.deleted", job="gpt", facts={"kind": "x", "seq": 9, "bid": "b"}
    )
    assert event_json(1, odd) == {"kind": "bid.deleted", "seq": 1, "bid": "b", "at": START,
        "job": "gpt",
                              "slot": ""}  # fmt: skip


def test_capacity_counts_each_answer_once() -> None:
    story = preempted()
    story.ask("other")
    story.now += 5
    for _ in range(2):
        story.tell("bid.refused", bid=story.bid, refusal="stockout", message="none left")
    story.now += 10
    rows = capacity_rows(story.events, story.now)
    fits("herd types --zones --json", rows)
    other, here = rows
    assert (other["zone"], other["requested"], other["refused"], other["granted"]) == (
        "other",
        1,
        1,
        0,
    )
    assert (other["refused_s_ago"], other["message"]) == (10, "none left")
    assert (here["requested"], here["granted"], here["wait_s"], here["life_s"]) == (2, 2, 70, 178)
    assert "10 s ago: none left" in capacity_text(rows)
    assert capacity_text([]) == "No node has been requested yet."


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.26, "0.3 s"), (9.96, "10.0 s"), (59.4, "59 s"), (59.6, "1 m 00 s"),
     (3599.6, "1 h 00 m"), (7500, "2 h 05 m"), (90000, "1 d 01 h")],
)  # fmt: skip
def test_times_are_short(seconds: float, said: str) -> None:
    assert format_span(seconds) == said


def test_money_and_shares() -> None:
    assert (format_money(1234.5), format_money(0, known=False), format_money(3,
        known=False)) == ("$1,234.50", "-",
                                                                             "$3.00+")  # fmt: skip
    assert (format_share(None), format_share(0.9316)) == ("-", "93.2 %")


def test_color_changes_only_the_color() -> None:
    rows = [("A", "B"), ("running", "1"), ("x", "22")]
    plain, coloured = format_table(rows, right=(1,)), format_table(rows, right=(1,), colour=True)
    assert plain.splitlines() == ["A         B", "running   1", "x        22"]
    assert "\x1b[32mrunning\x1b[0m" in coloured
    bare = coloured
    for code in ("\x1b[32m", "\x1b[2m", "\x1b[0m"):
        bare = bare.replace(code, "")
    assert bare == plain
