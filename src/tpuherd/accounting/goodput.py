"""Where a slot's time and money went: every second is in exactly one state.

The states are listed in docs/reference/events.md. PRODUCTIVE time turns into WASTED time when a
later attempt resumes from an earlier step.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tpuherd.model.slot_history import AttemptRecord, BidRecord, Verdict


class GoodputState(StrEnum):
    """What a second of a slot was spent on."""

    QUEUE_FIRST = "queue_first"
    CAPACITY_WAIT = "capacity_wait"
    CONTROLLER_GAP = "controller_gap"
    PROVISION = "provision"
    HOST_SETUP = "host_setup"
    STARTING = "starting"
    RESTORE = "restore"
    COMPILE = "compile"
    PRODUCTIVE = "productive"
    UNREPORTED = "unreported"
    SAVING = "saving"
    WASTED = "wasted"
    STOPPING = "stopping"
    DETECT = "detect"
    PROCESS_DOWN = "process_down"
    HUNG = "hung"
    UNKNOWN = "unknown"
    IDLE = "idle"
    STOPPED = "stopped"
    DONE = "done"
    GAVE_UP = "gave_up"


#: The explanations shown in output and docs.
MEANINGS: Mapping[GoodputState, str] = {
    GoodputState.QUEUE_FIRST: "waited for the first node",
    GoodputState.CAPACITY_WAIT: "waited for capacity after a loss",
    GoodputState.CONTROLLER_GAP: "between two steps of herd itself",
    GoodputState.PROVISION: "node granted, being created by the cloud",
    GoodputState.HOST_SETUP: "code shipped, hosts set up",
    GoodputState.STARTING: "command started, before its first step",
    GoodputState.RESTORE: "reading the checkpoint, if the command reports it",
    GoodputState.COMPILE: "compiling and the first step, if the command reports it",
    GoodputState.PRODUCTIVE: "work that counts",
    GoodputState.UNREPORTED: "command ran, but reported no steps: may be work or not",
    GoodputState.SAVING: "standing still to save a checkpoint, if the command reports it",
    GoodputState.WASTED: "work beyond the checkpoint that the next attempt resumed from",
    GoodputState.STOPPING: "being stopped, saving",
    GoodputState.DETECT: "no sign of life before a loss was noticed",
    GoodputState.PROCESS_DOWN: "node there, command had failed",
    GoodputState.HUNG: "command ran without output or a step until it was stopped, or stood still",
    GoodputState.UNKNOWN: "no sign of life of a host: whether it worked is not known yet",
    GoodputState.IDLE: "node kept ready, without a command",
    GoodputState.STOPPED: "stopped by the user",
    GoodputState.DONE: "after success",
    GoodputState.GAVE_UP: "after the last failure",
}
#: The slot is not meant to work in these states: they do not count.
REST = frozenset({GoodputState.IDLE, GoodputState.STOPPED, GoodputState.DONE, GoodputState.GAVE_UP})


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSpan:
    """A span of time in one state."""

    start: float
    end: float
    state: GoodputState


@dataclass(frozen=True, kw_only=True, slots=True)
class BilledSpan:
    """A span of time in which a node was billed."""

    start: float
    end: float
    bid: str
    zone: str
    per_hour: float | None  #: None: the price is not known

    @property
    def cost(self) -> float:
        return (self.end - self.start) / 3600 * (self.per_hour or 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptAccount:
    attempt: AttemptRecord
    zone: str = ""
    type: str = ""
    last_at: float | None = None  #: the last sign of its work
    why: str = ""  #: how it ended, as a sentence
    resumed: int | None = None  #: the step of the checkpoint that it resumed from
    startup: Mapping[str, float] = field(default_factory=dict)  #: seconds of its start, by part
    points: tuple[tuple[float, int], ...] = ()  #: when it reported which step
    save_blocked_s: float = 0.0  #: in which it stood still for checkpoints, if it reports that

    @property
    def progress_since(self) -> float | None:
        """When it began to make progress: its first step, or its start if it never reported one."""
        return self.attempt.first_step_at or self.attempt.started_at


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRecovery:
    """The time from the last sign of a lost attempt to the first step of the next one."""

    at: float
    until: float
    over: bool  #: False: it is still under way
    verdict: Verdict
    why: str
    before: AttemptAccount
    after: AttemptAccount | None
    seconds: Mapping[GoodputState, float]
    steps_lost: int | None  #: None: not reported

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part of the recovery."""
        return {
            part: sum(self.seconds.get(state, 0.0) for state in states)
            for part, states in PARTS.items()
        }


#: The parts of a recovery, as shown.
PARTS: Mapping[str, tuple[GoodputState, ...]] = {
    "detect": (GoodputState.DETECT, GoodputState.HUNG),
    "stop": (GoodputState.STOPPING,),
    "pause": (GoodputState.PROCESS_DOWN,),
    "queue": (GoodputState.CAPACITY_WAIT, GoodputState.QUEUE_FIRST),
    "provision": (GoodputState.PROVISION,),
    "setup": (GoodputState.HOST_SETUP,),
    "start": (GoodputState.STARTING,),
    "restore": (GoodputState.RESTORE,),
    "compile": (GoodputState.COMPILE,),
    "gap": (GoodputState.CONTROLLER_GAP,),
}
#: The parts of the start of a command, if it reports them, in order.
STARTUP: Mapping[str, str] = {
    "python_s": "Python",
    "import_s": "imports",
    "meet_s": "meeting the other processes",
    "restore_s": "reading the checkpoint",
    "compile_s": "compiling",
    "first_step_s": "the first step",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotAccount:
    """Where a slot's time went, from its submission until now or its end."""

    slot: str
    job: str
    start: float
    end: float
    state: GoodputState
    spans: tuple[StateSpan, ...]
    runs: tuple[AttemptAccount, ...] = ()
    bids: tuple[BidRecord, ...] = ()  #: those not known to be deleted
    step: int | None = None  #: the furthest known
    saved: int | None = None
    marks: Mapping[str, int] = field(default_factory=dict)  #: the best step, a milestone
    steps_lost: int = 0
    cost: float = 0.0
    moved: float = 0.0  #: of that, for checkpoints that went to other regions and back
    per_hour: float = 0.0
    priced: bool = True  #: False: the price of some node is not known
    over_why: str = ""  #: why it is done, or was given up
    billed: tuple[BilledSpan, ...] = ()  #: of all its nodes since then
    seconds: Mapping[GoodputState, float] = field(default_factory=dict)

    @property
    def wanted_s(self) -> float:
        """How long it was meant to work."""
        return sum(time for state, time in self.seconds.items() if state not in REST)

    @property
    def unreported_s(self) -> float:
        """How long its command ran without a sign of work: it may have been work, or not."""
        return self.seconds.get(GoodputState.UNREPORTED, 0.0)

    @property
    def known_s(self) -> float:
        """The part of the time wanted of which is known whether it was work."""
        return self.wanted_s - self.unreported_s

    @property
    def goodput(self) -> float | None:
        """The share of that in which it made progress; None if that is not known."""
        return combined_goodput([self])


def choose_measured(accounts: Iterable[SlotAccount]) -> list[SlotAccount]:
    """The slots whose goodput is known: they ran, and some work was seen, or there was none."""
    return [
        account
        for account in accounts
        if account.runs
        and (account.seconds.get(GoodputState.PRODUCTIVE) or not account.unreported_s)
    ]


def combined_goodput(accounts: Iterable[SlotAccount]) -> float | None:
    """The share of the known time in which they made progress; None if nothing is known."""
    measured = choose_measured(accounts)
    known = sum(account.known_s for account in measured)
    got_on = sum(account.seconds.get(GoodputState.PRODUCTIVE, 0.0) for account in measured)
    return got_on / known if known else None


def relabel_spans(
    spans: list[StateSpan],
    start: float,
    end: float,
    over: frozenset[GoodputState],
    new: GoodputState,
) -> None:
    """Change the state of the time between `start` and `end` that was in the states `over`."""
    painted: list[StateSpan] = []
    while spans and spans[-1].end > start:
        span = spans.pop()
        low, high = max(span.start, start), min(span.end, end)
        if span.state not in over or low >= high:
            painted.append(span)
            continue
        for left, right, what in (
            (high, span.end, span.state),
            (low, high, new),
            (span.start, low, span.state),
        ):
            if left < right:
                painted.append(StateSpan(start=left, end=right, state=what))
    for span in reversed(painted):
        if spans and spans[-1].state is span.state:
            span = replace(span, start=spans.pop().start)
        spans.append(span)


def seconds_by_state(spans: Iterable[StateSpan]) -> dict[GoodputState, float]:
    """Seconds by state."""
    seconds: dict[GoodputState, float] = {}
    for span in spans:
        seconds[span.state] = seconds.get(span.state, 0.0) + span.end - span.start
    return seconds


def clip_spans(spans: Sequence[StateSpan], start: float, end: float) -> tuple[StateSpan, ...]:
    """Cut spans, which are in order, to the time between `start` and `end`."""
    first = bisect_right(spans, start, key=lambda span: span.end)
    last = bisect_left(spans, end, key=lambda span: span.start)
    return tuple(
        StateSpan(start=max(span.start, start), end=min(span.end, end), state=span.state)
        for span in spans[first:last]
    )


def find_recoveries(account: SlotAccount) -> tuple[LossRecovery, ...]:
    """Every lost attempt, and how long the recovery took."""
    found = []
    for number, before in enumerate(account.runs, 1):
        after = account.runs[number] if number < len(account.runs) else None
        verdict, ended = before.attempt.verdict, before.attempt.ended_at
        if verdict in {None, Verdict.SUCCESS, Verdict.STOPPED} or ended is None:
            continue
        if after is None and account.state in REST:
            continue  # nothing resumes
        start = ended if before.last_at is None else min(before.last_at, ended)
        works_at = None if after is None else after.progress_since
        ends = (account.end if after is None else after.attempt.ended_at) or account.end
        until = max(start, ends if works_at is None else works_at)
        assert verdict is not None
        found.append(
            LossRecovery(
                at=start,
                until=until,
                over=works_at is not None or ends < account.end,
                verdict=verdict,
                why=before.why,
                before=before,
                after=after,
                seconds=seconds_by_state(clip_spans(account.spans, start, until)),
                steps_lost=count_lost_steps(before, after),
            )
        )
    return tuple(found)


def time_of_step(run: AttemptAccount, points: Sequence[tuple[float, int]], step: int) -> float:
    """When an attempt reached that step, interpolated between two reports."""
    before = (run.progress_since or run.attempt.launched_at, run.resumed)
    for at, there in points:
        if there >= step:
            start, low = before
            if low is None or there == low or step <= low:
                return at if there == step else start
            return start + (at - start) * (step - low) / (there - low)
        before = (at, there)
    return before[0]


def count_lost_steps(before: AttemptAccount, after: AttemptAccount | None) -> int | None:
    """How many steps were done twice; None if unknown."""
    if after is None or after.resumed is None or not before.points:
        return None
    if after.attempt.trial != before.attempt.trial:
        return None  # of a sweep: its trial resumes on another slot
    return max(0, before.points[-1][1] - after.resumed)
