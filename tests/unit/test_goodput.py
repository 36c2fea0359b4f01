"""Accounting: every second is in one state, and in the right one where it is known."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.unit.event_stories import PRICE, START, StoryLog, nonsense, started, struck
from tpuherd.accounting.accounts import Ledger, build_accounts, post_event
from tpuherd.accounting.costs import cost_between, cost_by_state
from tpuherd.accounting.goodput import (
    MEANINGS,
    GoodputState,
    SlotAccount,
    combined_goodput,
    find_recoveries,
)
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.job_rows import bid_stage, goodput_values, slot_phase


def check_sums(account: SlotAccount) -> None:
    """One state at any time, from submission to the end."""
    if not account.spans:
        assert account.start == account.end
        return
    assert account.spans[0].start == account.start
    assert account.spans[-1].end == account.end
    for before, after in pairwise(account.spans):
        assert before.end == after.start
        assert before.state is not after.state
    assert all(span.start < span.end for span in account.spans)
    assert sum(account.seconds.values()) == account.end - account.start


def test_every_state_is_documented() -> None:
    assert set(MEANINGS) == set(GoodputState)


UNSEEN = {
    Verdict.PREEMPTED: GoodputState.DETECT,
    Verdict.FAILURE: GoodputState.PROCESS_DOWN,
    Verdict.STALLED: GoodputState.HUNG,
}


def live(story: StoryLog, chance: Random, step: int) -> tuple[int, bool]:
    """One attempt of a step a second, with a checkpoint now and then, until something ends it.

    The step that the next one resumes from, and whether the node is still there.
    """
    told = {"resumed": step} if chance.random() < 0.5 else {}
    saved = resumed = step
    story.launch(chance.randrange(1, 100), step=step, **told)
    works_at = story.now
    for _ in range(chance.randrange(1, 5)):
        story.now += (more := chance.randrange(1, 300))
        step += more
        if chance.random() < 0.7:
            saved = step
            story.tell("attempt.saved", attempt=story.attempt, step=step)
    last_at = story.now
    story.now += (unseen := chance.randrange(1, 60))
    verdict = chance.choice(list(UNSEEN))
    story.truth[UNSEEN[verdict]] += unseen
    story.cost += story.now - works_at
    story.end(verdict, last_at=last_at, step=step)
    story.truth[GoodputState.PRODUCTIVE] += saved - resumed
    story.truth[GoodputState.WASTED] += step - saved
    story.lost += step - saved
    if verdict is not Verdict.PREEMPTED:
        story.wait(chance.randrange(1, 9), GoodputState.PROCESS_DOWN)
        return saved, True
    story.lose()
    story.wait(chance.randrange(1, 9), GoodputState.CONTROLLER_GAP)
    return saved, False


@pytest.mark.parametrize("seed", range(60))
def test_the_account_matches_the_known_truth(seed: int) -> None:
    chance = Random(seed)
    story = StoryLog()
    step, there = 0, False
    for _ in range(chance.randrange(1, 12)):
        if not there:
            story.get(*(chance.randrange(1, 500) for _ in range(3)))
        step, there = live(story, chance, step)
    if not there:
        story.get(1, 1, 1)
    story.launch(5, step=step)  # only now it shows what the last one lost
    story.wait(1, GoodputState.PRODUCTIVE)
    account = story.account()
    check_sums(account)
    assert {state: time for state, time in story.truth.items() if time} == account.seconds
    assert account.steps_lost == story.lost
    assert account.cost == pytest.approx(story.cost)
    assert sum(span.cost for span in account.billed) == pytest.approx(story.cost)
    goodput = story.truth[GoodputState.PRODUCTIVE] / (story.now - START)
    assert account.goodput == pytest.approx(goodput)


@pytest.mark.parametrize("seed", range(300))
def test_every_second_has_one_state_whatever_the_log_says(seed: int) -> None:
    chance = Random(seed)
    now, events = START, []
    for _ in range(chance.randrange(1, 200)):
        now += chance.choice([0, 1, 7, 500, -3])  # also a clock that is set back
        events.append(nonsense(chance, now))
    for account in build_accounts(events, now + 10).values():
        check_sums(account)
        goodput = account.goodput
        assert goodput is None or 0 <= goodput <= 1
        money = sum(cost_by_state(account).values())
        assert money == pytest.approx(sum(span.cost for span in account.billed))
        for recovery in find_recoveries(account):
            assert sum(recovery.seconds.values()) == max(0, recovery.until - recovery.at)


def test_a_command_without_steps_is_not_said_to_have_worked() -> None:
    story = started()
    story.wait(100, GoodputState.UNREPORTED)
    story.end(Verdict.SUCCESS)
    story.tell("slot.done", why="it succeeded")
    story.wait(50, GoodputState.DONE)
    account = story.account()
    assert account.seconds == story.truth
    assert account.wanted_s == 162
    assert account.goodput is None
    assert slot_phase(account) == "done"
    assert (account.state, account.over_why) == (GoodputState.DONE, "it succeeded")


@pytest.mark.parametrize("unfit", [True, False])
def test_a_command_that_cannot_run_has_done_no_useful_work(unfit: bool) -> None:
    story = started()
    story.wait(40, GoodputState.STARTING if unfit else GoodputState.UNREPORTED)
    story.end(Verdict.FAILURE, exit=1, unfit=unfit)
    account = story.account()
    assert account.seconds == story.truth
    assert account.goodput == (0.0 if unfit else None)


@pytest.mark.parametrize("told", ["saved", "ended"])
def test_without_steps_only_the_time_up_to_a_save_is_work(told: str) -> None:
    story = started()
    story.wait(60, GoodputState.PRODUCTIVE)
    if told == "saved":
        story.tell("attempt.saved", attempt=story.attempt, step=7)
        story.wait(40, GoodputState.UNREPORTED)
        assert story.account().goodput == pytest.approx(60 / 122)
    last_at = story.now
    story.wait(3, GoodputState.DETECT)
    story.end(Verdict.PREEMPTED, last_at=last_at, **({"step": 7} if told == "ended" else {}))
    story.lose()
    account = story.account()
    assert account.seconds == story.truth
    known = sum(story.truth.values()) - story.truth[GoodputState.UNREPORTED]
    assert account.goodput == pytest.approx(60 / known)
    check_sums(account)


def test_a_first_step_shows_that_the_script_had_only_started() -> None:
    story = started()
    story.wait(25, GoodputState.STARTING)
    assert story.account().seconds[GoodputState.UNREPORTED] == 25
    story.tell("attempt.first_step", attempt=story.attempt, step=1)
    story.wait(100, GoodputState.PRODUCTIVE)
    assert story.account().seconds == story.truth


def test_steps_of_changed_code_say_nothing_of_the_attempts_before() -> None:
    story = started()
    story.wait(80, GoodputState.UNREPORTED)
    story.end(Verdict.FAILURE, exit=1)
    story.wait(2, GoodputState.PROCESS_DOWN)
    for digest, steps in (("new", True), ("old", False)):
        story.number += 1
        story.tell(
            "attempt.launched", attempt=story.attempt, number=story.number, bid=story.bid,
            code_digest=digest,
        )  # fmt: skip
        story.tell("attempt.started", attempt=story.attempt)
        story.wait(25, GoodputState.STARTING if steps else GoodputState.UNREPORTED)
        if steps:
            story.tell("attempt.first_step", attempt=story.attempt, step=1)
            story.wait(100, GoodputState.PRODUCTIVE)
        story.end(Verdict.FAILURE, exit=1)
        story.wait(2, GoodputState.PROCESS_DOWN)
    account = story.account()
    assert account.seconds == story.truth
    check_sums(account)


def test_a_sum_counts_the_known_time_and_says_how_much_is_unknown() -> None:
    silent = started()
    silent.wait(3900, GoodputState.UNREPORTED)
    steps = struck().account()
    values = goodput_values([steps, silent.account()])
    assert values == {
        "goodput": steps.goodput,
        "goodput_why": "unknown for 1 h 05 m: the script reports no steps",
    }
    unknown = {"goodput": None, "goodput_why": "unknown: the script reports no steps"}
    assert goodput_values([silent.account()]) == unknown
    assert goodput_values([steps])["goodput_why"] == ""
    assert goodput_values([]) == {"goodput": None, "goodput_why": ""}


def test_a_recovery_is_split_into_its_parts() -> None:
    story = struck()
    story.wait(1, GoodputState.CONTROLLER_GAP)
    story.get(50, 20, 30)
    story.wait(0, GoodputState.CONTROLLER_GAP)
    story.launch(10, step=101, resumed=100, restore_s=4)
    story.truth[GoodputState.STARTING] -= 4
    story.truth[GoodputState.RESTORE] += 4
    story.wait(10, GoodputState.PRODUCTIVE)
    account = story.account()
    assert account.seconds == story.truth
    (recovery,) = find_recoveries(account)
    assert recovery.over
    assert recovery.steps_lost == 40
    assert recovery.until - recovery.at == 3 + 1 + 50 + 20 + 30 + 10
    assert recovery.parts == {
        "detect": 3, "stop": 0, "pause": 0, "queue": 50, "provision": 20, "setup": 30,
        "start": 6, "restore": 4, "compile": 0, "gap": 1,
    }  # fmt: skip


def test_the_time_before_the_first_step_is_split_as_reported() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    parts = {"python_s": 1.0, "import_s": 9.0, "compile_s": 25.0, "first_step_s": 5.0}
    story.launch(60, step=101, resumed=100, restore_s=15, startup=parts)
    story.truth[GoodputState.STARTING] -= 15 + 30
    story.truth[GoodputState.RESTORE] += 15
    story.truth[GoodputState.COMPILE] += 30
    account = story.account()
    assert account.seconds == story.truth
    assert [span.state for span in account.spans[-3:]] == [
        GoodputState.STARTING, GoodputState.RESTORE, GoodputState.COMPILE,
    ]  # fmt: skip


def test_a_start_that_claims_more_than_it_took_is_cut() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(60, step=1, restore_s=1e6, startup={"compile_s": 45.0})
    account = story.account()
    assert account.seconds[GoodputState.COMPILE] == 45
    assert account.seconds[GoodputState.RESTORE] == 15
    check_sums(account)


def test_the_time_in_which_training_stands_still_for_checkpoints_is_saving() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(5, step=0)
    story.wait(100, GoodputState.PRODUCTIVE)
    facts: dict[str, Any] = {"saves": 4, "save_blocked_s": 8.0, "save_took_s": 20.0}
    story.tell("attempt.saved", attempt=story.attempt, step=90, **facts)
    story.wait(50, GoodputState.PRODUCTIVE)
    story.tell("attempt.saved", attempt=story.attempt, step=100, **{**facts, "saves": 5,
               "save_blocked_s": 10.0})  # fmt: skip
    story.wait(40, GoodputState.WASTED)
    last_at = story.now
    story.wait(3, GoodputState.DETECT)
    story.end(Verdict.PREEMPTED, last_at=last_at, step=140, saved=100, **{**facts, "saves": 6,
              "save_blocked_s": 12.0})  # fmt: skip
    story.lose()
    story.get(50, 20, 30)
    story.launch(10, step=101, resumed=100)
    # Step 100 was reached 20 s before its checkpoint was durable.
    story.truth[GoodputState.PRODUCTIVE] -= 10 + 18
    story.truth[GoodputState.WASTED] += 18 - 2
    story.truth[GoodputState.SAVING] += 12
    account = story.account()
    assert account.seconds == {state: time for state, time in story.truth.items() if time}
    assert account.runs[0].save_blocked_s == 12.0


def fall_silent(story: StoryLog) -> float:
    """A host freezes, and a minute later that is recorded; return its last sign of life."""
    story.get(10, 20, 30)
    story.launch(5, step=0)
    story.wait(100, GoodputState.PRODUCTIVE)
    since = story.now
    story.wait(60, GoodputState.UNKNOWN)
    facts: dict[str, Any] = {"state": "silent", "code": "silent", "hosts": ["gpt-0-g1-7kq/w1"]}
    story.tell("bid.unhealthy", bid=story.bid, since=since, **facts)
    story.wait(40, GoodputState.UNKNOWN)
    return since


def test_silence_counts_as_work_only_where_the_host_says_so() -> None:
    for paused_s in (0.0, 90.0, 9000.0):
        story = StoryLog()
        fall_silent(story)
        account = story.account()
        assert account.state is GoodputState.UNKNOWN and account.seconds[account.state] == 100
        assert slot_phase(account) == "silent" and bid_stage(account.bids[0])[0] == "silent"
        story.tell("bid.healthy", bid=story.bid, code="silent", paused_s=paused_s)
        story.wait(7, GoodputState.PRODUCTIVE)
        account = story.account()
        assert account.state is GoodputState.PRODUCTIVE
        assert account.seconds.get(GoodputState.HUNG, 0.0) == min(paused_s, 100.0)
        assert account.seconds[GoodputState.PRODUCTIVE] == 207 - min(paused_s, 100.0)
        assert GoodputState.UNKNOWN not in account.seconds
        check_sums(account)


@pytest.mark.parametrize("verdict", [Verdict.NODE_FAULT, Verdict.PREEMPTED, Verdict.LOST])
def test_silence_before_a_loss_is_its_detection(verdict: Verdict) -> None:
    story = StoryLog()
    since = fall_silent(story)
    story.end(verdict, last_at=since)
    account = story.account()
    assert account.seconds[GoodputState.DETECT] == 100
    assert account.seconds[GoodputState.PRODUCTIVE] == 100
    assert GoodputState.UNKNOWN not in account.seconds


def test_money_is_split_by_what_the_slot_did() -> None:
    story = struck()
    story.tell("bid.deleted", bid=story.bid)
    story.ask()
    account = story.account()
    billed = {
        GoodputState.HOST_SETUP: 30,
        GoodputState.STARTING: 5,
        GoodputState.PRODUCTIVE: 140,  # no attempt has shown yet what is lost of it
        GoodputState.DETECT: 3,
    }
    assert cost_by_state(account) == pytest.approx(billed)  # a dollar a second
    (span,) = account.billed
    assert cost_between(account.billed, span.start - 9, span.start + 7) == pytest.approx(7)
    assert cost_between(account.billed, span.end, span.end + 7) == 0


def test_the_cost_of_an_earlier_job_of_the_same_name_is_kept() -> None:
    story = struck()
    story.tell("job.removed", slot="")
    story.tell("bid.deleted", bid=story.bid)
    story.tell("job.submitted", slot="")
    story.wait(60, GoodputState.QUEUE_FIRST)
    ledger = Ledger()
    for event in story.events:
        post_event(ledger, event)
    assert sum(span.cost for span in ledger.past["gpt"]) == pytest.approx(30 + 5 + 143)


def test_a_script_that_saves_and_resumes_itself_has_lost_nothing() -> None:
    story = struck()
    story.truth[GoodputState.PRODUCTIVE] += story.truth.pop(GoodputState.WASTED)
    story.get(50, 20, 30)
    story.launch(10, step=141, resumed=140)  # as `run.start = 140` tells
    account = story.account()
    assert account.seconds == {state: time for state, time in story.truth.items() if time}
    assert account.steps_lost == 0


def test_the_pause_after_a_failure_is_not_detection_time() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(10, step=1)
    story.wait(40, GoodputState.PRODUCTIVE)
    story.end(Verdict.FAILURE, exit=1, step=9)
    story.wait(25, GoodputState.PROCESS_DOWN)
    story.launch(5, step=9, resumed=9)
    account = story.account()
    assert account.seconds == story.truth
    (recovery,) = find_recoveries(account)
    assert {part: time for part, time in recovery.parts.items() if time} == {
        "pause": 25, "start": 5,
    }  # fmt: skip


def test_first_refusals_and_pauses_count_as_queueing() -> None:
    story = StoryLog()
    story.wait(1, GoodputState.CONTROLLER_GAP)
    story.ask()
    story.wait(5, GoodputState.QUEUE_FIRST)
    story.tell("bid.refused", bid=story.bid, refusal="stockout", message="none left")
    story.wait(60, GoodputState.QUEUE_FIRST)
    account = story.account()
    assert account.seconds == story.truth
    assert account.goodput is None


def test_stopped_time_does_not_count_and_a_new_life_starts_at_zero() -> None:
    story = StoryLog()
    story.get(1, 1, 1)
    story.launch(1, step=0)
    story.wait(10, GoodputState.PRODUCTIVE)
    story.tell("job.stopped", slot="")
    story.wait(1000, GoodputState.STOPPED)
    account = story.account()
    assert account.seconds == story.truth
    assert account.wanted_s == 14
    story.tell("job.submitted", slot="")
    made_at = story.now
    story.now += 5
    story.ask()
    again = story.account()
    assert (again.start, again.runs) == (made_at, ())


@pytest.mark.parametrize("end", ["slot.done", "slot.gave_up", "job.stopped"])
def test_the_time_of_a_finished_job_stops(end: str) -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(5, step=1)
    story.wait(100, GoodputState.PRODUCTIVE)
    story.end(Verdict.SUCCESS, last_at=story.now, step=100)
    story.tell(end, slot="" if end.startswith("job.") else "gpt-0", why="so")
    rest = {"slot.done": GoodputState.DONE, "slot.gave_up": GoodputState.GAVE_UP}.get(
        end, GoodputState.STOPPED
    )
    story.wait(40, rest)  # its node is given back
    story.tell("bid.deleted", bid=story.bid)
    before = story.account()
    assert before.seconds == {state: time for state, time in story.truth.items() if time}
    story.now += 720
    assert story.account() == before
    story.tell("job.changed", slot="")  # of what is over nothing changes by that
    if end == "slot.done":
        assert story.account().seconds == before.seconds
    story.tell("job.resumed", slot="", goal="run")
    story.tell("slot.gave_up", why="again")
    story.now += 5
    story.ask()
    check_sums(story.account())


def test_a_slot_added_later_counts_from_the_change() -> None:
    story = StoryLog()
    story.ask()
    story.now += 100
    story.tell("job.changed", slot="")
    story.now += 2
    story.events.append(
        HistoryEvent(at=story.now, kind="slot.done", job="gpt", slot="gpt-1", facts={"why": ""})
    )
    both = build_accounts(story.events, story.now)
    assert (both["gpt-0"].start, both["gpt-1"].start) == (START, START + 100)


def test_a_node_without_a_command_is_idle_and_has_no_goodput() -> None:
    story = StoryLog()
    story.events[0] = HistoryEvent(
        at=START, kind="job.submitted", job="gpt", facts={"goal": "idle"}
    )
    story.get(1, 2, 3)
    story.wait(100, GoodputState.IDLE)
    account = story.account()
    assert account.seconds == story.truth
    assert account.goodput is None
    assert (account.per_hour, account.cost) == (PRICE, 103)
    assert combined_goodput([account]) is None
