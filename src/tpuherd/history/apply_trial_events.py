"""Events of a sweep change what is known of its trials."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tpuherd.model.slots_and_plan import Event
from tpuherd.model.sweep_trials import POINTS_MAX, How, Spent, Sweep, Trial

Fold = Callable[[Sweep, Event], Sweep]


def changed(sweep: Sweep, number: int, **changes: Any) -> Sweep:
    """With one trial changed; a number that nobody made changes nothing."""
    if not 0 <= number < len(sweep.trials):
        return sweep
    trials = list(sweep.trials)
    trials[number] = replace(trials[number], **changes)
    return replace(sweep, trials=tuple(trials))


def made(sweep: Sweep, event: Event) -> Sweep:
    facts = event.facts
    if facts["trial"] != len(sweep.trials):
        return sweep
    one = Trial(
        number=facts["trial"], params=facts["params"], run=facts["run"], made_at=event.at
    )  # fmt: skip
    return replace(
        sweep,
        trials=(*sweep.trials, one),
        metric=str(facts.get("metric", "")),
        goal=str(facts.get("wanted", "")),
    )


def given(sweep: Sweep, event: Event) -> Sweep:
    return changed(sweep, event.facts["trial"], slot=event.slot, given_at=event.at)


def waits(sweep: Sweep, event: Event) -> Sweep:
    spent = Spent(**event.facts["spent"])
    return changed(sweep, event.facts["trial"], given_at=None, spent=spent)


def told(sweep: Sweep, event: Event) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    if not 0 <= number < len(sweep.trials):
        return sweep
    if facts["value"] is None:
        return changed(sweep, number, lost=True, told_at=event.at)
    points = sweep.trials[number].points
    # After a preemption it goes on from its checkpoint: what it tells again, it tells anew.
    points = tuple(one for one in points if one[0] < facts["step"])
    if len(points) >= POINTS_MAX:
        points = points[::2]
    points = (*points, (facts["step"], facts["value"]))
    return changed(sweep, number, points=points, lost=False, told_at=event.at)


def ended(sweep: Sweep, event: Event) -> Sweep:
    facts, number = event.facts, event.facts["trial"]
    if not 0 <= number < len(sweep.trials) or sweep.trials[number].how is not None:
        return sweep
    why = str(facts.get("why", ""))
    return changed(sweep, number, how=How(facts["how"]), ended_at=event.at, given_at=None, why=why)


def launched(sweep: Sweep, event: Event) -> Sweep:
    number, attempt = event.facts.get("trial"), event.facts["attempt"]
    if number is None or not 0 <= number < len(sweep.trials):
        return sweep
    one = sweep.trials[number]
    many = one.attempts + (one.attempt != attempt)
    return changed(sweep, number, attempt=attempt, attempts=many)


def dropped(sweep: Sweep, event: Event) -> Sweep:
    for one in sweep.left:
        sweep = changed(
            sweep, one.number, how=How.STOPPED, ended_at=event.at, given_at=None,
            why="its sweep was dropped",
        )  # fmt: skip
    return sweep


#: By kind of event; `wish.made` begins anew.
SWEEPS: Mapping[str, Fold] = {
    "wish.made": lambda sweep, event: Sweep(),
    "wish.dropped": dropped,
    "trial.made": made,
    "trial.given": given,
    "trial.waits": waits,
    "trial.told": told,
    "trial.ended": ended,
    "attempt.launched": launched,
}


def folded(sweep: Sweep, event: Event) -> Sweep:
    """A job's sweep after one more event of that job."""
    return SWEEPS[event.kind](sweep, event) if event.kind in SWEEPS else sweep


def of(events: Iterable[Event]) -> Sweep:
    """What the events of one job come to."""
    sweep = Sweep()
    for event in events:
        sweep = folded(sweep, event)
    return sweep
