"""What to change to gain most, and what each change would have brought in the job's history."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, log, sqrt

from tpuherd.accounting.cycles import Cycle, CycleEnd, SavePace, SlotCycles, read_cycles, read_pace
from tpuherd.accounting.goodput import GoodputState, SlotAccount, combined_goodput
from tpuherd.accounting.what_if import UNSEEN, Change, replay_job

TRUSTED = 0.0025  #: a replay of what happened may differ by so much
EXACT = 0.004  #: a prediction that may be further off is not made
GAIN_MIN = 0.002  #: smaller gains are not worth a line
SETUP_S = 30.0  #: a set-up that only ships the code
BOOT_S = 10.0  #: Python with lean imports
COMPILE_S = 5.0  #: programs from the cache
STALL_S = 120.0
STALL_STEPS = 20  #: the engine waits for so many steps anyway
GRACE_S = 25.0  #: between a preemption notice and the end
LOSSES_MIN = 2  #: fewer say nothing of how often nodes are lost
#: Times that people write.
TIMES_S = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800)


class AdviceKind(StrEnum):
    """What would be changed."""

    CHECKPOINTS = "checkpoints"
    NOTICE = "notice"
    FAILURES = "failures"
    STALL = "stall"
    SETUP = "setup"
    BOOT = "boot"
    COMPILE = "compile"


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A change, and what it would have brought."""

    kind: AdviceKind
    change: Change
    goodput: float  #: with the change
    gain: float = 0.0  #: above the real goodput
    now_s: float = 0.0  #: what it takes now
    then_s: float = 0.0  #: what it would take
    times: int = 0  #: how often that happened
    findings: tuple[str, ...] = ()  #: known failures that would not occur


@dataclass(frozen=True, kw_only=True, slots=True)
class JobAdvice:
    """All advice for a job, that with the greatest gain first; or why there is none."""

    advice: tuple[Advice, ...] = ()
    silence: str = ""  #: why nothing is predicted


@dataclass(frozen=True, kw_only=True, slots=True)
class Idea:
    """A change to try."""

    kind: AdviceKind
    change: Change
    now_s: float = 0.0
    then_s: float = 0.0
    times: int = 0
    findings: tuple[str, ...] = field(default=())


def advise(accounts: Iterable[SlotAccount]) -> JobAdvice:
    known = [account for account in accounts if account.runs]
    real = combined_goodput(known)
    if real is None:
        return JobAdvice(silence="nothing has run yet")
    read = [read_cycles(account) for account in known]
    histories = [history for history in read if history is not None]
    if len(histories) < len(read):
        return JobAdvice(silence="its attempts report no steps, or are those of many trials")
    pace = read_pace(known)
    if pace is None:
        return JobAdvice(silence="it has not reported enough steps and checkpoints")
    base = replay_job(histories, pace)
    if abs(base - real) > TRUSTED:
        away = f"{abs(base - real) * 100:.1f} points"
        return JobAdvice(silence=f"a replay of its history differs from what happened by {away}")
    found = [
        predict_gain(idea, histories, pace, real - base) for idea in list_ideas(histories, pace)
    ]
    good = [advice for advice in found if advice is not None and advice.goodput - real >= GAIN_MIN]
    good = [replace(advice, gain=advice.goodput - real) for advice in good]
    return JobAdvice(advice=tuple(sorted(good, key=lambda one: -one.gain)))


def predict_gain(
    idea: Idea, histories: Sequence[SlotCycles], pace: SavePace, beside: float
) -> Advice | None:
    """What an idea brings; None if what the history does not tell makes too great a difference.

    `beside` is what the replay of the history itself lacks.
    """
    found = [replay_job(histories, variant, idea.change) for variant in list_variants(pace)]
    if max(found) - min(found) > EXACT:
        return None
    return Advice(
        kind=idea.kind,
        change=idea.change,
        goodput=(max(found) + min(found)) / 2 + beside,
        now_s=idea.now_s,
        then_s=idea.then_s,
        times=idea.times,
        findings=idea.findings,
    )


def list_variants(pace: SavePace) -> list[SavePace]:
    """All that is compatible with the history."""
    ways = (True, False) if pace.at_multiples is None else (pace.at_multiples,)
    return [replace(pace, at_multiples=way, unseen=part) for way in ways for part in UNSEEN]


def list_ideas(histories: Sequence[SlotCycles], pace: SavePace) -> list[Idea]:
    gaps = [cycle.gap for history in histories for cycle in history.cycles]
    later = [cycle for history in histories for cycle in history.cycles[1:]]
    starts = [cycle.startup for history in histories for cycle in history.cycles]
    boots = [parts.get("python_s", 0.0) + parts.get("import_s", 0.0) for parts in starts]
    compiles = [cycle.startup.get("compile_s", 0.0) for cycle in later]
    setups = [setup_time(cycle) for history in histories for cycle in history.cycles]
    stall_s = nice_time(max(STALL_S, STALL_STEPS * pace.step_s))
    hangs = [gap.get(GoodputState.HUNG, 0.0) for gap in gaps]
    limits = (
        (AdviceKind.SETUP, setups, SETUP_S, Change(setup_s=SETUP_S)),
        (AdviceKind.BOOT, boots, BOOT_S, Change(boot_s=BOOT_S)),
        (AdviceKind.COMPILE, compiles, COMPILE_S, Change(compile_s=COMPILE_S)),
        (AdviceKind.STALL, hangs, stall_s, Change(stall_s=stall_s)),
    )
    ideas = [
        Idea(kind=kind, change=change, now_s=mean(long), then_s=then_s, times=len(long))
        for kind, seconds, then_s, change in limits
        if (long := [time for time in seconds if time > then_s])
    ]
    return [*ideas, *save_ideas(histories, pace), *failure_ideas(histories)]


def setup_time(cycle: Cycle) -> float:
    """How long its set-up took, with what was done before READY."""
    gap_s = cycle.gap.get(GoodputState.HOST_SETUP, 0.0)
    return gap_s if cycle.setup_s is None else cycle.setup_s


def save_ideas(histories: Sequence[SlotCycles], pace: SavePace) -> list[Idea]:
    """To save more or less often, by Young's rule; and to save when a notice comes."""
    if not pace.reported:
        return []
    cycles = [cycle for history in histories for cycle in history.cycles]
    losses = [cycle for cycle in cycles if cycle.wasted_s > pace.step_s]
    ideas = []
    if len(losses) >= LOSSES_MIN and pace.blocked_s > 0:
        life_s = sum(cycle.trained_s for cycle in cycles) / len(losses)
        best_s = max(sqrt(2 * pace.blocked_s * life_s), 10 * pace.blocked_s, pace.took_s)
        every = max(1, round(nearest_time(best_s) / pace.step_s))
        if every != pace.every:
            change = Change(save_every=every)
            ideas.append(Idea(kind=AdviceKind.CHECKPOINTS, change=change, now_s=pace.every_s,
                              then_s=every * pace.step_s, times=len(losses)))  # fmt: skip
    noticed = [cycle for cycle in losses if cycle.noticed]
    saving_s = pace.took_s + pace.step_s
    if noticed and saving_s <= GRACE_S:
        ideas.append(
            Idea(
                kind=AdviceKind.NOTICE,
                change=Change(saves_at_notice=True),
                now_s=mean([cycle.wasted_s for cycle in noticed]),
                then_s=saving_s,
                times=len(noticed),
            )
        )
    return ideas


def failure_ideas(histories: Sequence[SlotCycles]) -> list[Idea]:
    """To mend the command, unless it was given up: then nobody knows what would have followed."""
    failed = [
        cycle
        for history in histories
        for cycle in history.cycles
        if cycle.ending is CycleEnd.FAILURE
    ]
    if not failed or any(GoodputState.GAVE_UP in history.tail for history in histories):
        return []
    findings = tuple(dict.fromkeys(cycle.finding for cycle in failed if cycle.finding))
    return [Idea(kind=AdviceKind.FAILURES, change=Change(failures=False), times=len(failed),
                 findings=findings)]  # fmt: skip


def nice_time(seconds: float) -> float:
    """The next time that people write, or full hours."""
    return next((float(one) for one in TIMES_S if one >= seconds), ceil(seconds / 3600) * 3600.0)


def nearest_time(seconds: float) -> float:
    """The time that people write which is nearest by ratio."""
    return float(min(TIMES_S, key=lambda one: abs(log(one / seconds))))


def mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / len(seconds)


#: The assumption of each kind, in a sentence.
ASSUMES: Mapping[AdviceKind, str] = {
    AdviceKind.CHECKPOINTS: "the same losses at the same moments, and checkpoints that cost as"
    " much as now",
    AdviceKind.NOTICE: "the script saves after SIGTERM as fast as it saves now, and every notice"
    " comes as early as it did",
    AdviceKind.FAILURES: "the command does not fail again, and the same losses at the same moments",
    AdviceKind.STALL: "no healthy step takes longer than the limit, and the program hangs as often",
    AdviceKind.SETUP: "a set-up takes no longer than that, because an image or `requirements:`"
    " replaces what `setup` installs",
    AdviceKind.BOOT: "Python and all imports take no longer than that on every host",
    AdviceKind.COMPILE: "from the second attempt on, all compiled programs come from the cache",
}
