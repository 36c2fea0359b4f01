"""What `herd cost` shows: of one job as text and JSON, and of all jobs."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.unit.event_stories import PRICE, SLOT, START, StoryLog, started, struck
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import GoodputState, SlotAccount
from tpuherd.accounting.time_products import goodput_products
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.views.cost_rows import Calendar, Day, cost_page
from tpuherd.views.cost_text import cost_text
from tpuherd.views.job_cost_rows import job_cost_page, quantile
from tpuherd.views.job_cost_text import job_cost_text

HOUR, DAY = 3600.0, 86400.0


def fits(command: str, content: Any) -> None:
    jsonschema.validate(json.loads(json.dumps(content)), SCHEMAS[command])


def lost_once() -> StoryLog:
    story = struck()
    story.get(50, 20, 30)
    story.launch(10, step=101, resumed=100, restore_s=4)
    story.wait(60, GoodputState.PRODUCTIVE)
    return story


def page_of(*accounts: SlotAccount, now: float = START, job: str = "gpt") -> dict[str, Any]:
    page = job_cost_page(job, accounts, now, removed=False)
    fits("herd cost JOB --json", page)
    return page


def stormy_page() -> dict[str, Any]:
    """A job that worked for two hours each time, and lost twelve nodes."""
    story = struck()
    for number in range(1, 12):
        story.get(60, 120, 240)
        story.launch(30, step=100 * number + 1, resumed=100 * number, restore_s=4)
        story.wait(2 * HOUR, GoodputState.PRODUCTIVE)
        story.tell("attempt.saved", attempt=story.attempt, step=100 * (number + 1))
        story.wait(HOUR / 4, GoodputState.WASTED)
        story.end(Verdict.PREEMPTED, last_at=story.now, step=100 * (number + 1) + 12)
        story.lose()
    return page_of(story.account(), now=story.now)


def test_the_products_multiply_to_the_goodput() -> None:
    products = goodput_products([lost_once().account()])
    assert products.goodput == pytest.approx(160 / 378)
    held = 378 - 10 - 20 - 50 - 20
    assert products.scheduling == pytest.approx(held / 378)
    assert products.runtime == pytest.approx(160 / held)
    assert products.program is None  # four steps were reported in all
    unknown = goodput_products([])
    assert (unknown.goodput, unknown.scheduling, unknown.runtime) == (None, None, None)


def test_what_no_steps_were_reported_for_is_neither_work_nor_lost() -> None:
    silent = started()
    silent.wait(60, GoodputState.UNREPORTED)
    page = page_of(silent.account(), now=silent.now)
    shares = (page["goodput"], page["scheduling"], page["runtime"])
    assert shares == (None, pytest.approx(92 / 122), None)
    head = job_cost_text(page).partition("\n\n")[0].splitlines()
    assert head[1] == "goodput unknown: the script reports no steps"
    assert head[3] == "cost $92.00, $32.00 of it not for work that counts, $60.00 unknown"
    steps = lost_once().account()
    both = page_of(steps, silent.account(), now=silent.now)
    assert both["goodput"] == pytest.approx(160 / 378)
    assert both["scheduling"] * both["runtime"] == pytest.approx(both["goodput"])
    assert "goodput unknown for 1 m 00 s: the script reports no steps\n" in job_cost_text(both)


def test_slow_steps_lower_the_goodput_of_the_program() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(5, step=0)
    for number, seconds in enumerate((100, 100, 100, 300, 100), 1):
        story.wait(seconds, GoodputState.PRODUCTIVE)
        story.tell("attempt.saved", attempt=story.attempt, step=100 * number)
    assert goodput_products([story.account()]).program == pytest.approx(500 / 700)


def test_time_and_money_add_up() -> None:
    account = lost_once().account()
    page = page_of(account)
    assert sum(page["seconds"].values()) == pytest.approx(account.end - account.start)
    assert sum(page["money"].values()) == pytest.approx(page["cost"])
    (slot,) = page["slots"]
    assert sum(span["end"] - span["start"] for span in slot["spans"]) == account.end - START
    (incident,) = page["incidents"]
    assert (incident["slot"], incident["steps_lost"], page["steps_lost"]) == (SLOT, 40, 40)
    parts = {row["part"]: row["worst"] for row in page["parts"]}
    assert (parts["restore"], parts["queue"], parts["setup"]) == (4, 50, 30)
    assert parts["all"] == pytest.approx(incident["seconds"])


def test_quantiles_are_values_that_occurred() -> None:
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.5, 0.9, 1.0)] == [2.0, 4.0, 4.0]
    assert quantile([7.0], 0.5) == 7.0


def test_the_text_says_what_cost_most() -> None:
    text = job_cost_text(stormy_page(), width=100)
    assert re.search(r"goodput [0-9.]+ % = scheduling [0-9.]+ % × runtime [0-9.]+ %", text)
    assert "not for work that counts" in text
    assert re.search(r"work that counts +[0-9]+ h [0-9]+ m +[0-9.]+ % +\$[0-9.,]+ +█+", text)
    assert re.search(r"gpt-0 +[0-9.]+ %  [▁▂▄▆█▀▒×▼ ]+", text)
    assert "PART" in text and "WORST" in text
    assert "and 2 earlier ones: herd cost gpt --json" in text


def test_a_job_that_has_not_run_and_one_without_prices_say_so() -> None:
    story = StoryLog()
    story.ask()
    text = job_cost_text(page_of(story.account(), now=START))
    assert "nothing has run yet" in text
    unpriced = [
        replace(event, facts={**event.facts, "offer": {**event.facts["offer"], "price": None}})
        if event.kind == "bid.requested"
        else event
        for event in lost_once().events
    ]
    account = build_accounts(unpriced, START + 378)[SLOT]
    page = page_of(account)
    assert not page["price_known"]
    assert "The price of some node is unknown" in job_cost_text(page)


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    events = lost_once().events
    shuffled = [replace(event, at=event.at - 500 * (n % 3)) for n, event in enumerate(events)]
    account = build_accounts(shuffled, START)[SLOT]
    page = page_of(account)
    assert job_cost_text(page)


# ---- all jobs ------------------------------------------------------------------------------------


def calendar(now: float, *, days: int = 3) -> Calendar:
    start = START - START % DAY
    return Calendar(
        now=now,
        days=tuple(
            Day(
                date=f"2027-01-{14 - back:02}",
                start=start - back * DAY,
                end=start + DAY - back * DAY,
            )
            for back in reversed(range(days))
        ),
        month_start=start - 10 * DAY,
        month_end=start + 10 * DAY,
    )


def stored(job: str = "gpt", **document: Any) -> StoredJob:
    return StoredJob(job=job, goal=Goal.RUN, document={"name": job, **document}, made_at=START,
                     changed_at=START)  # fmt: skip


def test_the_cost_of_all_jobs() -> None:
    story = lost_once()
    account = story.account()
    page = cost_page([account], {}, {"gpt": stored()}, calendar(story.now))
    fits("herd cost --json", page)
    assert page["total"] == page["today"] == pytest.approx(account.cost)
    assert page["per_hour"] == PRICE
    assert sum(day["cost"] for day in page["days"]) == pytest.approx(account.cost)
    rest_s = page["forecast"]["day_end"] - story.now
    assert page["forecast"]["day"] == pytest.approx(account.cost + rest_s)  # a dollar a second
    text = cost_text(page)
    assert "now $3,600.00 per hour" in text
    assert "gpt" in text


def test_a_forecast_ends_at_the_limit_of_the_job() -> None:
    story = lost_once()
    account = story.account()
    job = stored(max_cost=account.cost + 100)
    page = cost_page([account], {}, {"gpt": job}, calendar(story.now))
    fits("herd cost --json", page)
    (row,) = page["jobs"]
    assert row["forecast_day"] == row["forecast_month"] == pytest.approx(100)
    assert row["limit_at"] == pytest.approx(story.now + 100)
    assert "Jobs with a limit" in cost_text(page)


def test_removed_and_earlier_jobs_count_in_what_was_spent() -> None:
    story = lost_once()
    story.tell("job.removed", slot="")
    story.tell("bid.deleted", bid=story.bid)
    account = story.account()
    past = {"gpt": account.billed, "old": account.billed[:1]}
    page = cost_page([account], past, {}, calendar(story.now))
    fits("herd cost --json", page)
    assert {row["job"]: row["removed"] for row in page["jobs"]} == {"gpt": True, "old": True}
    assert page["jobs"][0]["total"] == pytest.approx(2 * account.cost)
    assert page["per_hour"] == 0
    assert "old (removed)" in cost_text(page)


def test_without_jobs_nothing_has_cost_anything() -> None:
    page = cost_page([], {}, {}, calendar(START))
    fits("herd cost --json", page)
    assert cost_text(page).startswith("No job has cost anything yet")
