"""What a sweep has come to: its trials, folded from the log, and nothing that is not in it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tpuherd.core.model import Event

Value = float | int | str | bool  #: of a parameter
POINTS_MAX = 64  #: so many of a trial are remembered: then each second one; the log has them all


class How(StrEnum):
    """How a trial ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"  #: it was hopeless: its slot was given something better to do
    FAILED = "failed"  #: its command failed too often
    STOPPED = "stopped"  #: the whole sweep was dropped


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What a trial has used up of its budgets; it takes that along to another slot."""

    failures: int = 0
    preemptions: int = 0
    stalls: int = 0
    saved: int | None = None  #: the furthest durable checkpoint
    since: float | None = None  #: its first launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One try of a sweep: its parameters, where it is, and what it has told."""

    number: int
    params: Mapping[str, Value]
    run: str  #: its RUN_ID, the same wherever it goes on
    made_at: float
    slot: str = ""  #: where it is, or was last
    given_at: float | None = None  #: since when it is there; None: it waits for a slot
    attempt: str = ""  #: the latest
    attempts: int = 0
    points: tuple[tuple[int, float], ...] = ()  #: (step, value) as told, in the order of time
    lost: bool = False  #: the last that it told was no number
    told_at: float | None = None
    spent: Spent = field(default_factory=Spent)
    how: How | None = None  #: None: it is not over
    ended_at: float | None = None
    why: str = ""  #: of its end

    @property
    def value(self) -> float | None:
        """What it is judged by: the last that it told."""
        return self.points[-1][1] if self.points and not self.lost else None

    @property
    def step(self) -> int | None:
        """The step of that."""
        return self.points[-1][0] if self.points else None

    @property
    def waits(self) -> bool:
        """It is not over, and no slot has it."""
        return self.how is None and self.given_at is None

    @property
    def word(self) -> str:
        """runs, waits, or how it ended."""
        return str(self.how or ("waits" if self.waits else "runs"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """All trials of a job since it was wished (anew): trials[k] has the number k."""

    trials: tuple[Trial, ...] = ()
    metric: str = ""  #: what trials are judged by; "" where nothing is
    goal: str = ""  #: minimize, maximize

    @property
    def left(self) -> tuple[Trial, ...]:
        """Those that are not over."""
        return tuple(one for one in self.trials if one.how is None)

    def best_first(self) -> tuple[Trial, ...]:
        """Complete trials that told a value, the best first."""
        sign = -1.0 if self.goal == "maximize" else 1.0
        judged = [(one.value, one) for one in self.trials if one.how is How.COMPLETE]
        known = [(sign * value, one.number, one) for value, one in judged if value is not None]
        return tuple(one for _, _, one in sorted(known, key=lambda each: each[:2]))


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
