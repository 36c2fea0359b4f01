"""Sweeps in a closed loop with the planner, whatever happens to whichever node when."""

from dataclasses import replace
from itertools import product

import pytest

from tests.unit.planner_scenes import NAME, NOW, bid, host
from tests.unit.toy_cloud import slot
from tests.unit.toy_sweeps import Sweeper, search, settled
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import GoodputState
from tpuherd.cache_codec import decode_cache, encode_cache
from tpuherd.history.apply_event import apply_event
from tpuherd.model.observed import HostRun, HostStatus, ObservedState, RunState
from tpuherd.model.search import Prune
from tpuherd.model.slot_history import AttemptRecord, History, SlotHistory
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Limits
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord
from tpuherd.sweeps.scheduler import SweepStep, run_step

TRIALS = 6


def whole(toy: Sweeper) -> None:
    """Every trial has ended exactly once, and nothing is left."""
    assert toy.ends() == {number: ["complete"] for number in range(TRIALS)}
    assert [one.params["lr"] for one in toy.sweep.trials] == [1, 2, 3, 4, 5, 6]
    assert not toy.toy_nodes
    assert all(one.done_at is not None for one in toy.history.slots.values())


@pytest.mark.parametrize("copies", [1, 2, 3, 6, 9])
def test_every_trial_ends_once_and_all_nodes_are_withdrawn(copies: int) -> None:
    toy = Sweeper(copies, search())
    settled(toy)
    whole(toy)
    assert len(toy.launches) == TRIALS
    nodes = {event.facts["bid"] for event in toy.kinds("attempt.launched")}
    assert len(nodes) == min(copies, TRIALS)  # a slot's node stays from trial to trial
    assert len(toy.kinds("slot.prepared")) == len(nodes)  # and is not set up again


@pytest.mark.parametrize("moment", range(4, 60, 3))
@pytest.mark.parametrize("slot", ["gpt-0", "gpt-1"])
def test_a_preemption_at_any_moment_loses_no_trial(slot: str, moment: int) -> None:
    toy = Sweeper(2, search())
    for _ in range(moment):
        toy.tick()
    toy.lose(slot)
    settled(toy)
    whole(toy)


@pytest.mark.parametrize(("one", "other"), list(product(range(8, 44, 6), repeat=2)))
def test_two_preemptions_at_any_moments_lose_no_trial(one: int, other: int) -> None:
    toy = Sweeper(3, search())
    for moment in range(60):
        toy.tick()
        if moment == one:
            toy.lose("gpt-0")
        if moment == other:
            toy.lose("gpt-1")
    settled(toy)
    whole(toy)


@pytest.mark.parametrize("what", ["reboot", "deadly", "cut"])
@pytest.mark.parametrize("moment", range(10, 50, 8))
def test_other_node_problems_lose_no_trial(what: str, moment: int) -> None:
    toy = Sweeper(2, search())
    for _ in range(moment):
        toy.tick()
    for toy_node in toy.toy_nodes.values():
        if toy_node.ask.slot == "gpt-0":
            match what:
                case "reboot":
                    toy_node.boot += 1
                    for processes in toy_node.work.values():
                        for process in processes.values():
                            process.lost = process.lost or process.ended is None
                case "deadly":
                    toy_node.deadly = True
                case _:
                    toy_node.cut = True
    settled(toy, 2000)
    whole(toy)


def test_a_preempted_trial_runs_first_under_its_run_id() -> None:
    toy = Sweeper(2, search())
    toy.grants = lambda zone: 20.0
    toy.run(until=lambda toy: len(toy.launches) == 2)
    lost = next(one for one in toy.sweep.trials if one.slot == "gpt-1")
    toy.lose("gpt-1")
    toy.grants = lambda zone: 400.0  # the other slot is free long before a new node is there
    toy.run(until=lambda toy: len(toy.launches) == 3)
    third = toy.kinds("attempt.launched")[-1]
    assert (third.facts["trial"], third.slot) == (lost.number, "gpt-0")
    given = [event for event in toy.kinds("trial.assigned") if event.facts["trial"] == lost.number]
    assert [event.facts["resumed"] for event in given] == [False, True]
    toy.grants = lambda zone: 20.0
    settled(toy)
    whole(toy)
    assert toy.sweep.trials[lost.number].run == lost.run
    assert toy.sweep.trials[lost.number].attempts == 2


def test_budgets_belong_to_the_trial() -> None:
    toy = Sweeper(2, search(), limits=Limits(preemptions=1))
    toy.run(until=lambda toy: len(toy.launches) == 2)
    for many in (1, 2):  # the same trial is preempted twice, wherever it is
        assert toy.sweep.trials[0].attempts == many
        toy.lose(toy.sweep.trials[0].slot)
        while toy.sweep.trials[0].attempts == many and toy.sweep.trials[0].how is None:
            toy.tick()
    assert toy.sweep.trials[0].how is TrialEnd.FAILED
    assert "preempted twice" in toy.sweep.trials[0].why
    settled(toy)
    assert {how for hows in toy.ends().values() for how in hows} == {"failed", "complete"}
    assert all(len(hows) == 1 for hows in toy.ends().values())


def test_a_trial_that_fails_too_often_ends_alone() -> None:
    toy = Sweeper(2, search(), limits=Limits(failures=1))
    toy.fails = lambda trial: trial in {1, 4}
    settled(toy)
    ends = toy.ends()
    assert {number for number, hows in ends.items() if hows == ["failed"]} == {1, 4}
    assert sum(hows == ["complete"] for hows in ends.values()) == TRIALS - 2
    assert toy.sweep.trials[1].attempts == 2
    assert all(one.gave_up_at is None for one in toy.history.slots.values())
    assert not toy.toy_nodes


def test_if_all_trials_fail_the_job_gives_up() -> None:
    toy = Sweeper(2, search(), limits=Limits(failures=0))
    toy.fails = lambda trial: True
    settled(toy)
    assert toy.ends() == {number: ["failed"] for number in range(TRIALS)}
    whys = [one.gave_up_why for one in toy.history.slots.values() if one.gave_up_at]
    assert whys and all(why.startswith("no trial has succeeded: it failed once") for why in whys)
    assert not toy.toy_nodes


def test_hopeless_trials_are_pruned_and_their_slots_take_the_next() -> None:
    toy = Sweeper(2, search(prune=Prune(rule="median", warm_up=10, after=1)))
    toy.losses = lambda trial, age: float(trial.params["lr"])  # the first is the best
    settled(toy)
    hows = toy.ends()
    assert hows[0] == ["complete"] and all(len(one) == 1 for one in hows.values())
    pruned = [number for number, one in hows.items() if one == ["pruned"]]
    assert len(pruned) >= 3
    assert toy.sweep.best_first()[0].number == 0
    stopped = toy.kinds("attempt.stopping")
    assert {event.facts["why"] for event in stopped} == {"its trial is over"}
    assert not toy.toy_nodes


def test_a_loss_that_is_not_a_number_is_hopeless() -> None:
    toy = Sweeper(1, search(prune=Prune(rule="median")))
    toy.losses = lambda trial, age: float("nan") if trial.number == 2 else 1.0
    settled(toy)
    assert toy.ends()[2] == ["pruned"]
    assert toy.sweep.trials[2].value is None


def test_without_pruning_a_missing_metric_changes_nothing() -> None:
    toy = Sweeper(2, search())
    toy.losses = lambda trial, age: float("nan")
    settled(toy)
    whole(toy)
    assert [one.facts["value"] for one in toy.kinds("trial.reported")] == [None] * TRIALS


@pytest.mark.parametrize(("metric", "told"), [("loss", False), ("accuracy", True), ("", False)])
def test_a_trial_that_never_reported_the_metric_says_so_at_its_end(metric: str, told: bool) -> None:
    toy = Sweeper(2, search(metric=metric))
    settled(toy)
    whole(toy)
    ends = [str(one.facts["why"]) for one in toy.kinds("trial.ended")]
    assert {why.endswith("; it has never reported accuracy") for why in ends} == {told}, ends


@pytest.mark.parametrize("moment", range(6, 50, 4))
def test_a_stopped_sweep_continues_where_it_was(moment: int) -> None:
    toy = Sweeper(2, search())
    for _ in range(moment):
        toy.tick()
    toy.change_job(goal=Goal.GONE)
    toy.run(until=lambda toy: not toy.toy_nodes)
    many = len(toy.sweep.trials)
    for _ in range(20):
        toy.tick()
    assert len(toy.sweep.trials) == many and not toy.toy_nodes
    toy.change_job(goal=Goal.RUN)
    settled(toy)
    whole(toy)


def test_scaling_down_during_a_sweep() -> None:
    toy = Sweeper(3, search())
    toy.run(until=lambda toy: len(toy.launches) == 3)
    left = {name: one for name, one in toy.desired.slots.items() if name == "gpt-0"}
    toy.desired = type(toy.desired)(slots=left, owner="me")
    settled(toy)
    assert toy.ends() == {number: ["complete"] for number in range(TRIALS)}
    assert not toy.toy_nodes


def test_a_slot_that_cannot_be_set_up_leaves_its_trial_to_others() -> None:
    toy = Sweeper(2, search(), limits=Limits(cost=0.15))  # each node costs a dollar an hour
    toy.lasts = 200.0
    toy.run(until=lambda toy: any(one.gave_up_at for one in toy.history.slots.values()), many=2000)
    for _ in range(100):
        toy.tick()
    assert all(one.how in {None, TrialEnd.COMPLETE} for one in toy.sweep.trials)
    assert any(one.is_waiting for one in toy.sweep.trials)
    assert not toy.toy_nodes


def test_metrics_of_trials_are_recorded_now_and_then_and_at_the_end() -> None:
    toy = Sweeper(1, search(trials=1))
    toy.lasts = 3000.0
    toy.losses = lambda trial, age: 1.0 / (1.0 + age)
    settled(toy, 2000)
    told = toy.kinds("trial.reported")
    assert 100 < len(told) < 250  # 600 ticks: not each of them
    last = toy.sweep.trials[0]
    assert last.step == 3000 and last.value == pytest.approx(1 / 3001)


def test_no_trial_marks_work_of_another_as_wasted() -> None:
    toy = Sweeper(1, search())
    settled(toy)
    lines = [
        HistoryEvent(at=1000.0, kind="job.submitted", job="gpt", facts={"copies": 1}),
        *(
            replace(one, facts={**one.facts, "resumed": 0})
            if one.kind == "attempt.first_step"
            else one
            for one in toy.events
        ),
    ]
    account = build_accounts(lines, toy.now)["gpt-0"]
    assert len(account.runs) == TRIALS
    assert account.seconds.get(GoodputState.WASTED, 0.0) == 0.0 and account.steps_lost == 0
    assert account.seconds[GoodputState.PRODUCTIVE] >= TRIALS * (toy.lasts - 15.0)
    assert account.seconds.get(GoodputState.PROCESS_DOWN, 0.0) == 0.0


def test_a_restarted_engine_remembers_the_sweep() -> None:
    toy = Sweeper(2, search(prune=Prune(rule="median", after=1)))
    toy.losses = lambda trial, age: float("nan") if trial.number == 1 else 1.0
    for _ in range(40):
        toy.tick()
        assert decode_cache(History, encode_cache(toy.history)) == toy.history
    assert toy.sweep.trials[1].lost


@pytest.mark.parametrize("lost", [{0}, {1}, {2}, {0, 1}, {0, 1, 2}])
def test_no_slot_takes_a_trial_whose_creation_was_lost(lost: set[int]) -> None:
    """A damaged store may keep that a slot got trial 2, and not what it is: it is created again."""
    toy = Sweeper(2, search())
    while not any(one.kind == "trial.assigned" and one.facts["trial"] == 2 for one in toy.events):
        toy.tick()
    history = History()
    for event in toy.events:
        if not (event.kind == "trial.created" and event.facts["trial"] in lost):
            history = apply_event(history, event)
    sweep = history.sweeps.get("gpt", Sweep())
    assert sweep.made == min(lost)
    assert all(one.trial is None or one.trial < sweep.made for one in history.slots.values())


KNOWN = Sweep(trials=(TrialRecord(number=0, params={}, run="r", made_at=NOW),), made=1)
RUNS = HostRun(attempt="gpt-0-a1-me", word=RunState.RUNNING, started=NOW - 8)
RUNNING = AttemptRecord(
    id="gpt-0-a1-me", number=1, bid=NAME, code_digest="c", launched_at=NOW - 9, started_at=NOW - 8
)


@pytest.mark.parametrize(
    ("found", "free"),
    [
        (RUNNING, False),
        (replace(RUNNING, ended_at=NOW, sure=False), False),
        (replace(RUNNING, ended_at=NOW), True),
        (replace(RUNNING, trial=0), True),
        (replace(RUNNING, trial=5), False),  # nothing else is known of that trial
        (replace(RUNNING, trial=5, ended_at=NOW), True),
        (None, False),  # its hosts have not told yet what they run
    ],
)
def test_after_a_lost_store_no_trial_starts_while_a_node_may_still_run_it(
    found: AttemptRecord | None, free: bool
) -> None:
    there = bid(granted_at=NOW - 99, ready_at=NOW - 90)
    ready = replace(there, name="gpt-1-g1-me", slot="gpt-1", prepared="c")
    slots = {
        "gpt-0": SlotHistory(attempt=found, bids={NAME: replace(there, adopted=True)}),
        "gpt-1": SlotHistory(bids={ready.name: ready}),
    }
    turn = SweepStep(
        job="gpt", search=search(), slots=[slot("gpt-1", trials=True)], observed=ObservedState(),
        history=History(slots=slots, sweeps={"gpt": KNOWN}), now=NOW,
    )  # fmt: skip
    run_step(turn)
    assert ("trial.assigned" in [event.kind for event in turn.events]) == free


@pytest.mark.parametrize(
    ("hosts", "free"),
    [
        ((), False),
        ((host(0),), False),
        ((host(0), host(1, reached=False)), False),
        ((host(0), host(1, works=(RUNS,))), False),
        ((host(0), host(1, works=(replace(RUNS, word=RunState.ENDING),))), False),
        ((host(0), host(1, works=(replace(RUNS, word=RunState.ENDED),))), True),
        ((host(0), host(1, works=(replace(RUNS, word=RunState.LOST),))), True),
        ((host(0, works=(replace(RUNS, attempt="gpt-0-a2-me"),)), host(1)), True),
        ((host(0), host(1)), True),
    ],
)
def test_an_attempt_of_uncertain_end_is_over_when_all_hosts_say_so(
    hosts: tuple[HostStatus, ...], free: bool
) -> None:
    """Its time was up before its hosts could answer; the node stays, and is set up again."""
    late = replace(RUNNING, ended_at=NOW, sure=False)
    ready = bid(granted_at=NOW - 99, ready_at=NOW - 90, prepared="c")
    turn = SweepStep(
        job="gpt", search=search(), slots=[slot("gpt-0", trials=True)],
        observed=ObservedState(hosts={NAME: hosts}), now=NOW,
        history=History(slots={"gpt-0": SlotHistory(attempt=late, bids={NAME: ready})}),
    )  # fmt: skip
    run_step(turn)
    assert ("trial.assigned" in [event.kind for event in turn.events]) == free
