"""What a change would have brought: the same history, replayed as a few numbers.

What strikes from outside (a preemption, a stop) strikes at the same moments as it did. What the
program does to itself (a crash, a hang) happens after as much training as it did. A history that
this does not reproduce as it was gets no predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf

from tpuherd.accounting.cycles import Cycle, CycleEnd, SavePace, SlotCycles, wanted_time
from tpuherd.accounting.goodput import GoodputState

#: What goes on while a program saves because its node goes away: the next one is requested at once.
MEANWHILE = (
    GoodputState.DETECT,
    GoodputState.STOPPING,
    GoodputState.CAPACITY_WAIT,
    GoodputState.PROVISION,
)


WORK_SLACK = 0.01
UNSEEN = (0.5, 0.0, 1.0)  #: of a step, from the last one that was reported to a loss


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What would be different; the default is nothing."""

    save_every: int | None = None  #: steps between two checkpoints
    setup_s: float = inf  #: at most so long for each set-up
    boot_s: float = inf  #: at most so long for Python and its imports
    compile_s: float = inf  #: at most so long for compiling, from the second attempt on
    stall_s: float = inf  #: hangs end after so long
    saves_at_notice: bool = False
    failures: bool = True  #: False: the command does not fail


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedTime:
    """Seconds of a replayed history."""

    wanted_s: float
    productive_s: float


def replay_job(
    histories: Sequence[SlotCycles], pace: SavePace, change: Change | None = None
) -> float:
    """The goodput that all slots together would have had."""
    times = [replay_slot(history, pace, change or Change()) for history in histories]
    wanted = sum(time.wanted_s for time in times)
    return sum(time.productive_s for time in times) / wanted if wanted else 0.0


def replay_slot(history: SlotCycles, pace: SavePace, change: Change) -> ReplayedTime:
    if change.save_every is not None:
        pace = replace(pace, every=change.save_every)
    cycles = history.cycles if change.failures else merge_failures(history.cycles)
    done = cycles[-1].ending is CycleEnd.DONE
    # All work may differ a little: whether it ends before a loss or after is then not known.
    total = (
        history.productive_s
        * (1.0 + WORK_SLACK * (0.5 - (0.5 if pace.unseen is None else pace.unseen)))
        if done
        else inf
    )
    clock, wanted, work = history.start, 0.0, 0.0
    step, longer_s = cycles[0].resumed, 0.0
    for number, cycle in enumerate(cycles):
        gap = changed_gap(cycle, change, longer_s, first=number == 0)
        clock += sum(gap.values())
        wanted += wanted_time(gap)
        attempt = ReplayedAttempt(cycle=cycle, clock=clock, skipped=step_phase(step, pace))
        lasts, trained, kept = train(attempt, pace)
        saves = change.saves_at_notice and cycle.noticed and kept < trained
        longer_s = pace.step_s if saves else 0.0
        if saves:  # it goes on to the end of its step
            lasts, trained, kept = lasts + longer_s, trained + longer_s, trained + longer_s
        left = total - work
        if cycle.ending is CycleEnd.DONE or trained >= left:
            return ReplayedTime(
                wanted_s=wanted + left + pace.blocked_s * saves_begun(left, attempt, pace),
                productive_s=total,
            )
        clock, wanted, work = clock + lasts, wanted + lasts, work + kept
        step += round(kept / pace.step_s) + cycle.ahead if kept else 0
    return ReplayedTime(wanted_s=wanted + wanted_time(history.tail), productive_s=work)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedAttempt:
    """An attempt of the replay."""

    cycle: Cycle  #: as it was
    clock: float  #: its first step now
    skipped: int  #: steps since the last multiple at which the program saves

    def early_s(self, pace: SavePace) -> float:
        """Seconds of steps towards the first checkpoint that were done before `clock`."""
        return (self.cycle.ahead + self.skipped) * pace.step_s


def step_phase(step: int, pace: SavePace) -> int:
    return step % pace.every if pace.at_multiples else 0


def train(attempt: ReplayedAttempt, pace: SavePace) -> tuple[float, float, float]:
    """How long an attempt trains, saves included; the time of its steps; how much of it is kept."""
    cycle = attempt.cycle
    if cycle.ending in {CycleEnd.FAILURE, CycleEnd.STALL}:
        trained = cycle.trained_s
        lasts = trained + pace.blocked_s * saves_begun(trained, attempt, pace)
    else:
        lasts = max(0.0, cycle.end - attempt.clock)
        period = pace.every_s + pace.blocked_s
        begun = floor((lasts + attempt.early_s(pace) + pace.blocked_s) / period)
        trained = max(0.0, lasts - begun * pace.blocked_s)
    saved = cycle.asked and cycle.wasted_s < pace.step_s / 2
    if cycle.ending is CycleEnd.OPEN or saved:
        return lasts, trained, trained
    ways = UNSEEN if pace.unseen is None else (pace.unseen,)
    kept = [min(trained, kept_time(lasts, attempt, pace, unseen)) for unseen in ways]
    return lasts, trained, min(kept, key=lambda one: abs(trained - one - cycle.wasted_s))


def kept_time(lasts: float, attempt: ReplayedAttempt, pace: SavePace, unseen: float) -> float:
    """Seconds of training that the last durable checkpoint covers."""
    early = attempt.early_s(pace)
    spare = spare_time(attempt.cycle.ending, pace, unseen)
    durable = floor((lasts + spare + early + pace.blocked_s) / (pace.every_s + pace.blocked_s))
    return max(0.0, durable * pace.every_s - early)


def spare_time(ending: CycleEnd, pace: SavePace, unseen: float) -> float:
    """Seconds from the last step to the end, without those until a checkpoint is durable."""
    match ending:
        case CycleEnd.STALL:
            return 0.0  # it hangs for longer than that
        case CycleEnd.FAILURE:
            return -pace.took_s
        case _:
            return unseen * pace.step_s - pace.took_s


def saves_begun(trained: float, attempt: ReplayedAttempt, pace: SavePace) -> int:
    return floor((trained + attempt.early_s(pace)) / pace.every_s)


def changed_gap(
    cycle: Cycle, change: Change, longer_s: float, *, first: bool
) -> Mapping[GoodputState, float]:
    """The gap before an attempt, after the change; the one before trained so much longer."""
    gap, parts = dict(cycle.gap), cycle.startup
    if cycle.setup_s is None:
        limit(gap, GoodputState.HOST_SETUP, change.setup_s)
    else:  # what of it was done before READY cost nothing
        shorten(gap, GoodputState.HOST_SETUP, cycle.setup_s - change.setup_s)
    limit(gap, GoodputState.HUNG, change.stall_s)
    boot = parts.get("python_s", 0.0) + parts.get("import_s", 0.0)
    shorten(gap, GoodputState.STARTING, boot - change.boot_s)
    if not first:
        shorten(gap, GoodputState.COMPILE, parts.get("compile_s", 0.0) - change.compile_s)
    for state in MEANWHILE:
        less = min(longer_s, gap.get(state, 0.0))
        shorten(gap, state, less)
        longer_s -= less
    return gap


def limit(gap: dict[GoodputState, float], state: GoodputState, most: float) -> None:
    if state in gap:
        gap[state] = min(gap[state], most)


def shorten(gap: dict[GoodputState, float], state: GoodputState, by: float) -> None:
    if by > 0:
        gap[state] = max(0.0, gap.get(state, 0.0) - by)


def merge_failures(cycles: Sequence[Cycle]) -> tuple[Cycle, ...]:
    """The cycles of a command that does not fail: it trains on until what ended a later attempt."""
    merged: list[Cycle] = []
    goes_on: Cycle | None = None
    for cycle in cycles:
        if goes_on is not None:
            whole = replace(
                cycle,
                gap=goes_on.gap,
                start=goes_on.start,
                ahead=goes_on.ahead,
                startup=goes_on.startup,
                trained_s=goes_on.trained_s - goes_on.wasted_s + cycle.trained_s,
            )
        else:
            whole = cycle
        goes_on = whole if cycle.ending is CycleEnd.FAILURE else None
        if goes_on is None:
            merged.append(whole)
    return (*merged, replace(goes_on, ending=CycleEnd.OPEN)) if goes_on is not None else (
        tuple(merged)
    )  # fmt: skip
