"""A slot's history as a row of cycles: a gap without progress, then training until it ends.

This is what what_if.py replays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd

from tpuherd.accounting.goodput import (
    REST,
    AttemptAccount,
    GoodputState,
    SlotAccount,
    StateSpan,
    clip_spans,
    seconds_by_state,
)
from tpuherd.model.slot_history import Verdict

SAVES_MIN = 3  #: different steps that tell an interval
EVERY_MIN = 2
MEAN_SHARE = 0.2  #: a regular interval differs no more from the mean
TRAINING = frozenset({GoodputState.PRODUCTIVE, GoodputState.WASTED, GoodputState.SAVING})


class CycleEnd(StrEnum):
    """What ended the training of an attempt."""

    OUTSIDE = "outside"  #: its node was lost, or the user stopped it: at a moment of its own
    FAILURE = "failure"  #: the command failed, after some time of training
    STALL = "stall"  #: it made no more progress, after some time of training
    DONE = "done"
    OPEN = "open"  #: it runs, or none has followed it yet


ENDS: Mapping[Verdict, CycleEnd] = {
    Verdict.SUCCESS: CycleEnd.DONE,
    Verdict.FAILURE: CycleEnd.FAILURE,
    Verdict.STALLED: CycleEnd.STALL,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cycle:
    """One attempt that made progress, and the gap before."""

    gap: Mapping[GoodputState, float]  #: seconds since the end of the training before
    start: float  #: its first step
    end: float  #: the last sign of its work
    ending: CycleEnd
    trained_s: float  #: without its saves
    wasted_s: float
    resumed: int  #: the step of the checkpoint that it continued from
    ahead: int  #: steps that were done by `start`
    noticed: bool  #: it was asked to stop before its node went away
    asked: bool  #: it was asked to stop, so that it could save
    startup: Mapping[str, float]
    setup_s: float | None = None  #: its set-up, of which a part was before READY; None: unknown
    finding: str = ""  #: the known failure that ended it


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotCycles:
    """All of a slot's history that matters here."""

    start: float
    end: float
    cycles: tuple[Cycle, ...]
    tail: Mapping[GoodputState, float]  #: seconds after the last cycle
    productive_s: float
    wanted_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SavePace:
    """How a program trains and saves."""

    step_s: float  #: without saves
    every: int  #: steps between two checkpoints
    at_multiples: bool | None  #: it saves at multiples of that; False: so many steps after it
    #: resumed; None: its history does not tell
    unseen: float | None = None  #: of a step: from the last one that was reported to a loss;
    #: None: what explains best how much was lost
    blocked_s: float  #: how long training stands still for one
    took_s: float  #: from its begin until it is durable
    reported: bool  #: False: the program does not report what saves cost

    @property
    def every_s(self) -> float:
        return self.every * self.step_s


def read_cycles(account: SlotAccount) -> SlotCycles | None:
    """The cycles of an account; None if its attempts report no steps, or are those of trials."""
    runs = [run for run in account.runs if run.attempt.first_step_at is not None]
    if not runs or any(run.attempt.trial is not None for run in account.runs):
        return None
    cycles: list[Cycle] = []
    before = account.start
    for run in runs:
        cycle = read_cycle(account, run, before)
        cycles.append(cycle)
        before = cycle.end
    if cycles[-1].ending is not CycleEnd.DONE:  # no attempt has shown yet what the last one lost
        cycles[-1] = replace(cycles[-1], ending=CycleEnd.OPEN)
    return SlotCycles(
        start=account.start,
        end=account.end,
        cycles=tuple(cycles),
        tail=seconds_by_state(clip_spans(account.spans, before, account.end)),
        productive_s=account.seconds.get(GoodputState.PRODUCTIVE, 0.0),
        wanted_s=account.wanted_s,
    )


def read_cycle(account: SlotAccount, run: AttemptAccount, before: float) -> Cycle:
    attempt = run.attempt
    start = max(before, attempt.first_step_at or attempt.launched_at)
    until = account.end if attempt.ended_at is None else attempt.ended_at
    spans = [
        span for span in clip_spans(account.spans, start, until) if span.state in TRAINING
    ]  # fmt: skip
    seconds = seconds_by_state(spans)
    wasted = seconds.get(GoodputState.WASTED, 0.0)
    first = run.points[0][1] if run.points else 0
    return Cycle(
        gap=seconds_by_state(clip_spans(account.spans, before, start)),
        start=start,
        end=max((span.end for span in spans), default=start),
        ending=CycleEnd.OPEN
        if attempt.verdict is None
        else ENDS.get(attempt.verdict, CycleEnd.OUTSIDE),
        trained_s=seconds.get(GoodputState.PRODUCTIVE, 0.0) + wasted,
        wasted_s=wasted,
        resumed=run.resumed or 0,
        ahead=max(0, first - (run.resumed or 0)),
        noticed=attempt.verdict is Verdict.PREEMPTED and attempt.stopping_at is not None,
        asked=attempt.stopping_at is not None or attempt.verdict is Verdict.FAILURE,
        startup=run.startup,
        setup_s=run.setup_s,
        finding=attempt.finding,
    )


def read_pace(accounts: Iterable[SlotAccount]) -> SavePace | None:
    """How these slots train and save; None if that cannot be told."""
    known = list(accounts)
    step_s = measure_step(known)
    if step_s is None:
        return None
    runs = [run for account in known for run in account.runs]
    reports = [(run.saves, run.resumed or 0) for run in runs if run.saves is not None]
    count = sum(saves.count for saves, _ in reports)
    if count:
        steps = sum(max(0, saves.step - resumed) for saves, resumed in reports)
        took = [saves.took_s for saves, _ in reports if saves.took_s is not None]
        mean, regular = steps / count, save_interval(runs)
        near = regular is not None and abs(regular - mean) <= MEAN_SHARE * mean
        every = regular if near and regular is not None else max(1, round(mean))
        return SavePace(
            step_s=step_s,
            every=every,
            at_multiples=saves_at_multiples(runs, every),
            blocked_s=sum(saves.blocked_s for saves, _ in reports) / count,
            took_s=sum(took) / len(took) if took else 0.0,
            reported=True,
        )
    regular = save_interval(runs)
    if regular is None:
        return None
    return SavePace(step_s=step_s, every=regular, at_multiples=True, blocked_s=0.0, took_s=0.0,
                    reported=False)  # fmt: skip


def save_interval(runs: Iterable[AttemptAccount]) -> int | None:
    """The steps between checkpoints of a program that saves at multiples; None if it seems not to.

    A checkpoint that was saved because the node went away may be of any step.
    """
    known = list(runs)
    regular = {run.saves.step for run in known if run.saves is not None and not is_farewell(run)}
    if not regular:
        regular = {run.attempt.saved for run in known if run.attempt.saved and not is_farewell(run)}
    found = gcd(*regular)
    return found if len(regular) >= SAVES_MIN and found >= EVERY_MIN else None


def saves_at_multiples(runs: Iterable[AttemptAccount], every: int) -> bool | None:
    """Whether a program that resumed between two multiples saved at the next multiple."""
    told = [
        run.saves.step % every == 0
        for run in runs
        if run.saves is not None and (run.resumed or 0) % every and not is_farewell(run)
    ]
    return all(told) if told else None


def is_farewell(run: AttemptAccount) -> bool:
    """Whether its last checkpoint is that of its last step."""
    return bool(run.points) and run.attempt.saved == run.points[-1][1]


def measure_step(accounts: Sequence[SlotAccount]) -> float | None:
    """Seconds of training a step, without saves."""
    seconds, steps = 0.0, 0
    for account in accounts:
        for run in account.runs:
            if len(run.points) < 2:
                continue
            (start, first), (end, last) = run.points[0], run.points[-1]
            spans = clip_spans(account.spans, start, end)
            seconds += training_time(spans)
            steps += last - first
    return seconds / steps if steps and seconds else None


def training_time(spans: Iterable[StateSpan]) -> float:
    """Seconds of steps in these spans, without saves."""
    trains = TRAINING - {GoodputState.SAVING}
    return sum(span.end - span.start for span in spans if span.state in trains)


def wanted_time(seconds: Mapping[GoodputState, float]) -> float:
    return sum(time for state, time in seconds.items() if state not in REST)
