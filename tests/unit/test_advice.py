"""What to change to gain most: each prediction is what the same history gives with the change."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.event_stories import START, StoryLog
from tests.unit.toy_training import ToyJob, ToyProgram, draw_strikes
from tpuherd.accounting.advice import Advice, AdviceKind, advise
from tpuherd.accounting.goodput import GoodputState, SlotAccount, combined_goodput

HALF_A_POINT = 0.005
HOURS = 24.0
STORMY = ToyProgram(crashes={4: 150, 9: 90}, hangs={6: 60, 12: 40})


def live(program: ToyProgram, seed: int, hours: float = HOURS) -> SlotAccount:
    return ToyJob(program, draw_strikes(seed, hours)).live(START + hours * 3600.0)


def apply_change(program: ToyProgram, advice: Advice) -> ToyProgram:
    """The program with the change."""
    change = advice.change
    match advice.kind:
        case AdviceKind.CHECKPOINTS:
            assert change.save_every is not None
            return replace(program, save_every=change.save_every)
        case AdviceKind.NOTICE:
            return replace(program, saves_at_term=True)
        case AdviceKind.FAILURES:
            return replace(program, crashes={}, hangs=later_hangs(program))
        case AdviceKind.STALL:
            return replace(program, stall_s=change.stall_s)
        case AdviceKind.SETUP:
            return replace(program, setup_s=change.setup_s)
        case AdviceKind.BOOT:
            return replace(program, boot_s=change.boot_s)
        case AdviceKind.COMPILE:
            return replace(program, compile_again_s=change.compile_s)


def later_hangs(program: ToyProgram) -> dict[int, int]:
    """Without its crashes the attempts have other numbers."""
    return {
        number - sum(crash < number for crash in program.crashes): steps
        for number, steps in program.hangs.items()
    }


def check_predictions(program: ToyProgram, seed: int) -> Counter[AdviceKind]:
    """Which kinds were predicted for this history; all of them right."""
    account = live(program, seed)
    kinds: Counter[AdviceKind] = Counter()
    for one in advise([account]).advice:
        real = live(apply_change(program, one), seed).goodput
        assert real == pytest.approx(one.goodput, abs=HALF_A_POINT), (one, account.goodput)
        assert one.gain == pytest.approx(one.goodput - (account.goodput or 0.0))
        kinds[one.kind] += 1
    return kinds


@pytest.mark.parametrize("steps", [10**9, 6000], ids=["running", "done"])
def test_each_prediction_is_what_the_changed_job_does(steps: int) -> None:
    kinds: Counter[AdviceKind] = Counter()
    for seed in range(6):
        kinds += check_predictions(replace(STORMY, steps=steps), seed)
    assert min(kinds[kind] for kind in AdviceKind if kind is not AdviceKind.NOTICE) >= 2, kinds


def test_saving_at_a_notice_is_predicted_where_saves_are_frequent() -> None:
    kinds: Counter[AdviceKind] = Counter()
    for seed in range(4):
        kinds += check_predictions(replace(STORMY, save_every=40), seed)
    assert kinds[AdviceKind.NOTICE] >= 2, kinds


@pytest.mark.parametrize("early_s", [20.0, 100.0])
def test_of_a_shorter_set_up_only_what_comes_after_ready_is_gained(early_s: float) -> None:
    program, kinds = replace(STORMY, early_s=early_s), Counter[AdviceKind]()
    for seed in range(4):
        kinds += check_predictions(program, seed)
        for one in advise([live(program, seed)]).advice:
            assert one.kind is not AdviceKind.SETUP or one.now_s == program.setup_s
    assert kinds[AdviceKind.SETUP] >= 2, kinds


def test_the_greatest_gain_comes_first() -> None:
    gains = [one.gain for one in advise([live(STORMY, 0)]).advice]
    assert gains == sorted(gains, reverse=True)
    assert len(gains) >= 3


def test_slots_are_advised_together() -> None:
    accounts = [live(STORMY, 0), live(STORMY, 1)]
    found = advise(accounts).advice[0]
    changed = [live(apply_change(STORMY, found), seed) for seed in (0, 1)]
    assert found.goodput == pytest.approx(combined_goodput(changed), abs=HALF_A_POINT)


def test_a_program_that_does_not_tell_what_saves_cost_gets_no_advice_on_them() -> None:
    account = live(STORMY, 0)
    silent = replace(account, runs=tuple(replace(run, saves=None) for run in account.runs))
    kinds = {one.kind for one in advise([silent]).advice}
    assert not kinds & {AdviceKind.CHECKPOINTS, AdviceKind.NOTICE}


def test_without_steps_or_runs_nothing_is_predicted() -> None:
    story = StoryLog()
    story.get(10, 20, 30)
    assert advise([story.account()]).silence == "nothing has run yet"
    story.launch(5, step=1)
    story.wait(100, GoodputState.PRODUCTIVE)
    assert "steps and checkpoints" in advise([story.account()]).silence
    assert "report no steps" in advise([without_steps()]).silence


def without_steps() -> SlotAccount:
    story = StoryLog()
    story.get(10, 20, 30)
    story.number = 1
    facts: dict[str, Any] = {"number": 1, "bid": story.bid, "code_digest": "c"}
    story.tell("attempt.launched", attempt=story.attempt, **facts)
    story.tell("attempt.started", attempt=story.attempt)
    story.wait(100, GoodputState.PRODUCTIVE)
    return story.account()


def test_a_history_that_a_replay_does_not_reproduce_gets_no_predictions() -> None:
    account = live(STORMY, 0)
    first, *others = account.runs
    assert first.saves is not None
    wrong = replace(first, saves=replace(first.saves, blocked_s=first.saves.blocked_s + 20_000.0))
    found = advise([replace(account, runs=(wrong, *others))])
    assert not found.advice
    assert "differs from what happened" in found.silence
