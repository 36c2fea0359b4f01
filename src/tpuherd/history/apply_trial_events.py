"""Apply events to the trials of a sweep."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.sweep_trials import POINTS_MAX, Sweep, TrialEnd, TrialRecord, TrialUsage

SweepEventHandler = Callable[[Sweep, HistoryEvent], Sweep]


def change_trial(sweep: Sweep, number: int, **changes: Any) -> Sweep:
    """Change one trial; an unknown number changes nothing."""
    if not 0 <= number < len(sweep.trials):
        return sweep
    trials = list(sweep.trials)
    trials[number] = replace(trials[number], **changes)
    return replace(sweep, trials=tuple(trials))


def apply_trial_made(sweep: Sweep, event: HistoryEvent) -> Sweep:
    facts = event.facts
    if facts["trial"] != len(sweep.trials):
        return sweep
    one = TrialRecord(
        number=facts["trial"], params=facts["params"], run=facts["run_id"], made_at=event.at
    )  # fmt: skip
    return replace(
        sweep,
        trials=(*sweep.trials, one),
        metric=str(facts.get("metric", "")),
        goal=str(facts.get("direction", "")),
    )


def apply_trial_given(sweep: Sweep, event: HistoryEvent) -> Sweep:
    return change_trial(sweep, event.facts["trial"], slot=event.slot, given_at=event.at)


def apply_trial_waiting(sweep: Sweep, event: HistoryEvent) -> Sweep:
    spent = TrialUsage(**event.facts["usage"])
    return change_trial(sweep, event.facts["trial"], given_at=None, spent=spent)


def apply_trial_value(sweep: Sweep, event: HistoryEvent) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    if not 0 <= number < len(sweep.trials):
        return sweep
    if facts["value"] is None:
        return change_trial(sweep, number, lost=True, reported_at=event.at)
    points = sweep.trials[number].points
    # After a preemption it resumes from its checkpoint and reports later steps again.
    points = tuple(one for one in points if one[0] < facts["step"])
    if len(points) >= POINTS_MAX:
        points = points[::2]
    points = (*points, (facts["step"], facts["value"]))
    return change_trial(sweep, number, points=points, lost=False, reported_at=event.at)


def apply_trial_ended(sweep: Sweep, event: HistoryEvent) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    if not 0 <= number < len(sweep.trials) or sweep.trials[number].how is not None:
        return sweep
    why = str(facts.get("why", ""))
    return change_trial(
        sweep, number, how=TrialEnd(facts["outcome"]), ended_at=event.at, given_at=None, why=why
    )


def apply_trial_launched(sweep: Sweep, event: HistoryEvent) -> Sweep:
    number, attempt = event.facts.get("trial"), event.facts["attempt"]
    if number is None or not 0 <= number < len(sweep.trials):
        return sweep
    one = sweep.trials[number]
    many = one.attempts + (one.attempt != attempt)
    return change_trial(sweep, number, attempt=attempt, attempts=many)


def apply_sweep_dropped(sweep: Sweep, event: HistoryEvent) -> Sweep:
    for one in sweep.unfinished:
        sweep = change_trial(
            sweep, one.number, how=TrialEnd.STOPPED, ended_at=event.at, given_at=None,
            why="its sweep was removed",
        )  # fmt: skip
    return sweep


#: By kind of event; `job.submitted` starts over.
SWEEPS: Mapping[str, SweepEventHandler] = {
    "job.submitted": lambda sweep, event: Sweep(),
    "job.removed": apply_sweep_dropped,
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
