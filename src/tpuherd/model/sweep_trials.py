"""The state of a sweep: its trials, folded from the event log."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

Value = float | int | str | bool  #: of a parameter
POINTS_MAX = 64  #: points kept per trial; beyond, every second one


class TrialEnd(StrEnum):
    """How a trial ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"  #: ended early because its metric was too poor
    FAILED = "failed"  #: its command failed too often
    STOPPED = "stopped"  #: the whole sweep was removed


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialUsage:
    """What a trial has used of its budgets; it keeps this on another slot."""

    failures: int = 0
    preemptions: int = 0
    stalls: int = 0
    saved: int | None = None  #: the furthest durable checkpoint
    since: float | None = None  #: its first launch


def read_usage(document: Mapping[str, Any]) -> TrialUsage:
    """Return what an event says of it; what only a newer herd knows is left out."""
    known = {one.name for one in fields(TrialUsage)}
    return TrialUsage(**{name: value for name, value in document.items() if name in known})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial of a sweep: its parameters, its slot, and its reported metrics."""

    number: int
    params: Mapping[str, Value]
    run: str  #: its RUN_ID, the same in all attempts
    made_at: float
    slot: str = ""  #: its current or last slot
    given_at: float | None = None  #: since when it has that slot; None: it waits for one
    attempt: str = ""  #: the latest
    attempts: int = 0
    points: tuple[tuple[int, float], ...] = ()  #: (step, value) as reported, in order of time
    lost: bool = False  #: its latest value was not a number
    reported_at: float | None = None
    spent: TrialUsage = field(default_factory=TrialUsage)
    how: TrialEnd | None = None  #: None: it has not ended
    ended_at: float | None = None
    why: str = ""  #: of its end

    @property
    def value(self) -> float | None:
        """The latest value that it reported."""
        return self.points[-1][1] if self.points and not self.lost else None

    @property
    def step(self) -> int | None:
        """The step of the latest value."""
        return self.points[-1][0] if self.points else None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a slot."""
        return self.how is None and self.given_at is None

    @property
    def status_word(self) -> str:
        """runs, waits, or how it ended."""
        return str(self.how or ("waits" if self.is_waiting else "runs"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """The trials of a job since its submission, in the order of their numbers.

    A map may have very many: of its trials, which are items, only those that have not ended are
    kept here. How each of them ended is in the event log.
    """

    trials: tuple[TrialRecord, ...] = ()
    made: int = 0  #: trials so far: their numbers are 0 … made - 1
    complete: int = 0  #: trials that succeeded
    items: str = ""  #: of a map: the digest of its items
    failed: tuple[int, ...] = ()  #: of a map: the items that failed
    again: tuple[int, ...] = ()  #: of a map: items that are to run again, before new ones
    worst: int = 0  #: of a map: the greatest exit status of its failed items
    is_over: bool = False  #: of a map: it was recorded that all items have ended
    metric: str = ""  #: what trials are compared by; "" if nothing
    goal: str = ""  #: minimize, maximize

    def find_trial(self, number: int) -> TrialRecord | None:
        """The trial with this number, if it is kept here."""
        place = trial_place(self.trials, number)
        return None if place is None else self.trials[place]

    @property
    def unfinished(self) -> tuple[TrialRecord, ...]:
        """The trials that have not ended."""
        return tuple(one for one in self.trials if one.how is None)

    def best_first(self) -> tuple[TrialRecord, ...]:
        """Complete trials with a value, the best first."""
        sign = -1.0 if self.goal == "maximize" else 1.0
        judged = [(one.value, one) for one in self.trials if one.how is TrialEnd.COMPLETE]
        known = [(sign * value, one.number, one) for value, one in judged if value is not None]
        return tuple(one for _, _, one in sorted(known, key=lambda each: each[:2]))


def trial_place(trials: Sequence[TrialRecord], number: int) -> int | None:
    """The place of this number among trials in the order of their numbers."""
    place = bisect_left(trials, number, key=lambda one: one.number)
    return place if place < len(trials) and trials[place].number == number else None
