"""Apply events to the trials of a sweep, and to the items of a map."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.sweep_trials import (
    POINTS_MAX,
    Sweep,
    TrialEnd,
    TrialRecord,
    read_usage,
    trial_place,
)

SweepEventHandler = Callable[[Sweep, HistoryEvent], Sweep]


def change_trial(sweep: Sweep, number: int, **changes: Any) -> Sweep:
    """Change one trial; an unknown number changes nothing."""
    place = trial_place(sweep.trials, number)
    if place is None:
        return sweep
    trials = list(sweep.trials)
    trials[place] = replace(trials[place], **changes)
    return replace(sweep, trials=tuple(trials))


def apply_trial_made(sweep: Sweep, event: HistoryEvent) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    again = sweep.again[1:] if sweep.again[:1] == (number,) else sweep.again
    if number != sweep.made and again is sweep.again:
        return sweep
    one = TrialRecord(
        number=number, params=facts["params"], run=facts["run_id"], made_at=event.at
    )  # fmt: skip
    trials = list(sweep.trials)
    insort(trials, one, key=lambda each: each.number)
    return replace(
        sweep,
        trials=tuple(trials),
        made=max(sweep.made, number + 1),
        again=again,
        metric=str(facts.get("metric", "")),
        goal=str(facts.get("direction", "")),
    )


def apply_trial_given(sweep: Sweep, event: HistoryEvent) -> Sweep:
    return change_trial(sweep, event.facts["trial"], slot=event.slot, given_at=event.at)


def apply_trial_waiting(sweep: Sweep, event: HistoryEvent) -> Sweep:
    spent = read_usage(event.facts["usage"])
    return change_trial(sweep, event.facts["trial"], given_at=None, spent=spent)


def apply_trial_value(sweep: Sweep, event: HistoryEvent) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    trial = sweep.find_trial(number)
    if trial is None:
        return sweep
    if facts["value"] is None:
        return change_trial(sweep, number, lost=True, reported_at=event.at)
    # After a preemption it resumes from its checkpoint and reports later steps again.
    points = tuple(one for one in trial.points if one[0] < facts["step"])
    if len(points) >= POINTS_MAX:
        points = points[::2]
    points = (*points, (facts["step"], facts["value"]))
    return change_trial(sweep, number, points=points, lost=False, reported_at=event.at)


def apply_trial_ended(sweep: Sweep, event: HistoryEvent) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    trial = sweep.find_trial(number)
    if trial is None or trial.how is not None:
        return sweep
    how = TrialEnd(facts["outcome"])
    sweep = replace(sweep, complete=sweep.complete + (how is TrialEnd.COMPLETE))
    if not sweep.items:
        return change_trial(
            sweep, number, how=how, ended_at=event.at, given_at=None, why=str(facts.get("why", ""))
        )
    sweep = replace(sweep, trials=tuple(one for one in sweep.trials if one.number != number))
    if how is TrialEnd.COMPLETE:
        return sweep
    worst = max(sweep.worst, facts.get("exit") or 1)
    return replace(sweep, failed=(*sweep.failed, number), worst=worst)


def apply_trial_launched(sweep: Sweep, event: HistoryEvent) -> Sweep:
    number, attempt = event.facts.get("trial"), event.facts["attempt"]
    trial = None if number is None else sweep.find_trial(number)
    if trial is None:
        return sweep
    many = trial.attempts + (trial.attempt != attempt)
    return change_trial(sweep, trial.number, attempt=attempt, attempts=many)


def apply_sweep_dropped(sweep: Sweep, event: HistoryEvent) -> Sweep:
    for one in sweep.unfinished:
        sweep = change_trial(
            sweep, one.number, how=TrialEnd.STOPPED, ended_at=event.at, given_at=None,
            why="its sweep was removed",
        )  # fmt: skip
    return sweep


def apply_map_started(sweep: Sweep, event: HistoryEvent) -> Sweep:
    """A new map, or one that goes on: then the event says how far it is."""
    facts = event.facts
    return Sweep(
        items=facts["items"],
        made=facts.get("made", 0),
        complete=facts.get("complete", 0),
        again=tuple(facts.get("again", ())),
    )


def apply_map_ended(sweep: Sweep, event: HistoryEvent) -> Sweep:
    return replace(sweep, is_over=True) if sweep.items else sweep


#: By kind of event; `job.submitted` starts over.
SWEEPS: Mapping[str, SweepEventHandler] = {
    "job.submitted": lambda sweep, event: Sweep(),
    "job.removed": apply_sweep_dropped,
    "map.started": apply_map_started,
    "map.ended": apply_map_ended,
    "trial.created": apply_trial_made,
    "trial.assigned": apply_trial_given,
    "trial.waiting": apply_trial_waiting,
    "trial.reported": apply_trial_value,
    "trial.ended": apply_trial_ended,
    "attempt.launched": apply_trial_launched,
}


def apply_trial_event(sweep: Sweep, event: HistoryEvent) -> Sweep:
    """A job's sweep after one more event of that job."""
    return SWEEPS[event.kind](sweep, event) if event.kind in SWEEPS else sweep


def build_sweep(events: Iterable[HistoryEvent]) -> Sweep:
    """The sweep that results from the events of one job."""
    sweep = Sweep()
    for event in events:
        sweep = apply_trial_event(sweep, event)
    return sweep
