"""The account of one slot, folded from its events.

Some events also tell what was true before them: an end names the last sign of life, a first step
the checkpoint it came from. Then the time since is relabeled.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tpuherd.accounting.costs import billed_spans, is_billed
from tpuherd.accounting.goodput import (
    AttemptAccount,
    BilledSpan,
    GoodputState,
    SlotAccount,
    StateSpan,
    relabel_spans,
    seconds_by_state,
    time_of_step,
)
from tpuherd.history.apply_event import apply_slot_event
from tpuherd.model.slot_history import SILENT, BidRecord, SlotHistory, Verdict, bid_cost
from tpuherd.model.slots_and_plan import Goal, HistoryEvent

UNREPORTED = frozenset({GoodputState.UNREPORTED})
RUNNING = UNREPORTED | {GoodputState.PRODUCTIVE}
WORKING = RUNNING | {GoodputState.STARTING, GoodputState.RESTORE, GoodputState.COMPILE,
                     GoodputState.SAVING}  # fmt: skip
NOT_KNOWN = frozenset({GoodputState.UNKNOWN})
#: The state between the last sign of an attempt and the record of its end.
UNNOTICED: Mapping[Verdict, tuple[frozenset[GoodputState], GoodputState]] = {
    Verdict.SUCCESS: (WORKING, GoodputState.CONTROLLER_GAP),
    Verdict.FAILURE: (WORKING, GoodputState.PROCESS_DOWN),
    Verdict.PREEMPTED: (WORKING | NOT_KNOWN, GoodputState.DETECT),
    Verdict.NODE_FAULT: (WORKING | NOT_KNOWN, GoodputState.DETECT),
    Verdict.LOST: (WORKING | NOT_KNOWN, GoodputState.DETECT),
    Verdict.STALLED: (WORKING, GoodputState.HUNG),
    Verdict.STOPPED: (RUNNING, GoodputState.HUNG),
}
RUNS_MAX = 1_000  #: attempts that an account lists: a slot of a map has very many


@dataclass(slots=True)
class AccountBuilder:
    slot: str
    job: str
    start: float
    at: float
    goal: Goal = Goal.RUN
    stopped: bool = False
    slot_history: SlotHistory = field(default_factory=SlotHistory)
    spans: list[StateSpan] = field(default_factory=list)
    runs: list[AttemptAccount] = field(default_factory=list)
    points: list[list[tuple[float, int]]] = field(default_factory=list)  #: of each run
    granted: bool = False  #: ever
    refused: bool = False  #: the cloud's last answer to a bid was a refusal
    reporting: set[str] = field(default_factory=set)  #: digests of code that reported a step
    reached: int | None = None
    saved: int | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    why: str = ""
    billed: list[BilledSpan] = field(default_factory=list)  #: of nodes that are gone


def add_event(book: AccountBuilder, event: HistoryEvent) -> None:
    """Account for the time until the event, then apply the event.

    The time of a slot that is over and has no nodes stands still until it runs again.
    """
    over = current_state(book) if has_ended(book) else None
    if over is None:
        add_span(book, event.at, current_state(book))
    read_event(book, event)
    if over is not None and not has_ended(book):
        add_span(book, event.at, over)


def has_ended(book: AccountBuilder) -> bool:
    """Whether the slot has ended: it is not desired, and none of it is left."""
    slot_history = book.slot_history
    over = (
        book.stopped
        or slot_history.dropped
        or slot_history.done_at is not None
        or slot_history.gave_up_at is not None
    )
    runs = slot_history.attempt is not None and slot_history.attempt.ended_at is None
    return over and not runs and not slot_history.bids


def read_event(book: AccountBuilder, event: HistoryEvent) -> None:
    if event.kind == "attempt.saved":  # the most frequent kind: it changes nothing else here
        handle_saved(book, event)
        return
    if event.kind == "attempt.launched":
        handle_launched(book, event)
    before = book.slot_history.bids
    book.slot_history = apply_slot_event(book.slot_history, event)
    if event.kind == "bid.deleted" and event.facts["bid"] in before:
        book.billed += billed_spans([before[event.facts["bid"]]], event.at)
    if book.runs and book.slot_history.attempt is not None:
        last = book.runs[-1]
        if last.attempt.id == book.slot_history.attempt.id:
            book.runs[-1] = replace(last, attempt=book.slot_history.attempt)
    if event.kind in TELLS:
        TELLS[event.kind](book, event)


def add_span(book: AccountBuilder, until: float, now: GoodputState) -> None:
    """Account for the time in this state until then; a clock that goes back adds nothing."""
    if until <= book.at:
        return
    if book.spans and book.spans[-1].state is now:
        book.spans[-1] = StateSpan(start=book.spans[-1].start, end=until, state=now)
    else:
        book.spans.append(StateSpan(start=book.at, end=until, state=now))
    book.at = until


def current_state(book: AccountBuilder) -> GoodputState:
    """What the slot's time is spent on, according to the events so far."""
    slot_history = book.slot_history
    if slot_history.dropped:
        return GoodputState.STOPPED
    if slot_history.done_at is not None:
        return GoodputState.DONE
    if book.stopped:
        return GoodputState.STOPPED
    if slot_history.gave_up_at is not None:
        return GoodputState.GAVE_UP
    return attempt_state(book) or bids_state(book)


def attempt_state(book: AccountBuilder) -> GoodputState | None:
    """The state of its attempt; None if it has none, or its node is lost."""
    attempt = book.slot_history.attempt
    if attempt is None or attempt.ended_at is not None:
        return None
    bid = book.slot_history.bids.get(attempt.bid)
    if bid is None or bid.lost_at is not None:
        return None
    if attempt.stopping_at is not None:
        return GoodputState.STOPPING
    if bid.silent_at is not None:
        return GoodputState.UNKNOWN
    if attempt.first_step_at is not None:
        return GoodputState.PRODUCTIVE
    if attempt.started_at is None or attempt.code_digest in book.reporting:
        return GoodputState.STARTING
    return GoodputState.UNREPORTED


def bids_state(book: AccountBuilder) -> GoodputState:
    """The state of its bids, while no attempt runs."""
    there = live_bids(book.slot_history.bids.values())
    ready = [bid for bid in there if bid.ready_at is not None]
    if any(bid.prepared for bid in ready):
        if book.goal is Goal.IDLE or not book.runs:
            return GoodputState.IDLE
        last = book.slot_history.attempt
        here = last is not None and any(bid.name == last.bid for bid in ready)
        failed = here and last is not None and last.trial == book.slot_history.trial
        return GoodputState.PROCESS_DOWN if failed else GoodputState.CONTROLLER_GAP
    if ready:
        return GoodputState.HOST_SETUP
    if any(bid.granted_at is not None for bid in there):
        return GoodputState.PROVISION
    waits = book.refused or any(bid.refusal is None for bid in there)
    if waits:
        return GoodputState.CAPACITY_WAIT if book.granted else GoodputState.QUEUE_FIRST
    return GoodputState.CONTROLLER_GAP


def live_bids(bids: Iterable[BidRecord]) -> list[BidRecord]:
    """The bids that may still become usable."""
    return [bid for bid in bids if bid.lost_at is None and bid.withdrawn_at is None]


def handle_launched(book: AccountBuilder, event: HistoryEvent) -> None:
    """Open a run for a new attempt, but not for the same one sent again."""
    if book.runs and book.runs[-1].attempt.id == event.facts["attempt"]:
        return
    slot_history = apply_slot_event(book.slot_history, event)
    bid = slot_history.bids.get(event.facts["bid"])
    zone, type = (bid.offer.zone, bid.offer.type) if bid else ("", "")
    assert slot_history.attempt is not None
    if book.runs and book.runs[-1].attempt.trial != slot_history.attempt.trial:
        book.reached = book.saved = None  # of a sweep: each trial counts its own steps
        book.marks = {}
    book.runs.append(AttemptAccount(attempt=slot_history.attempt, zone=zone, type=type))
    book.points.append([])
    if len(book.runs) > RUNS_MAX:
        del book.runs[0], book.points[0]


def handle_first_step(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply the first step of an attempt, which shows what came before and where it resumed."""
    run, facts = run_of_event(book, event), event.facts
    if run is None:
        return
    if run.attempt.code_digest not in book.reporting:
        book.reporting.add(run.attempt.code_digest)
        for one in book.runs:  # none of this code made progress before; of other code none knows
            until = event.at if one is run else one.attempt.ended_at or event.at
            if one.attempt.code_digest == run.attempt.code_digest:
                relabel_spans(
                    book.spans, one.attempt.launched_at, until, UNREPORTED, GoodputState.STARTING
                )
    parts = {name: float(value) for name, value in (facts.get("startup") or {}).items()}
    restored = float(facts.get("restore_s") or 0.0)
    relabel_startup(book, run, event.at, parts, restored)
    resumed = resumed_step(book, run, facts)
    if resumed is not None and len(book.runs) > 1:
        mark_wasted(book, resumed)
        if book.reached is not None:
            book.lost += max(0, book.reached - resumed)
            book.reached = resumed
        book.saved = resumed  # a checkpoint beyond it was not valid
    startup = {**parts, **({"restore_s": restored} if restored else {})}
    book.runs[-1] = replace(run, resumed=resumed, startup=startup)
    record_step(book, event.at, facts.get("step"))


def relabel_startup(
    book: AccountBuilder,
    run: AttemptAccount,
    until: float,
    parts: Mapping[str, float],
    restored: float,
) -> None:
    """Split the time before a first step: its last part was compiling, that before it restoring."""
    compiled = parts.get("compile_s", 0.0) + parts.get("first_step_s", 0.0)
    for seconds, state in ((compiled, GoodputState.COMPILE), (restored, GoodputState.RESTORE)):
        start = max(run.attempt.launched_at, until - seconds)
        if start < until:
            relabel_spans(book.spans, start, until, frozenset({GoodputState.STARTING}), state)
        until = start


def resumed_step(book: AccountBuilder, run: AttemptAccount, facts: Mapping[str, Any]) -> int | None:
    """The step of its checkpoint: as reported, else the furthest one that explains its step."""
    if facts.get("resumed") is not None:
        return int(facts["resumed"])
    if run.attempt.number == 1:
        return 0
    return min((one for one in (book.saved, facts.get("step")) if one is not None),
               default=None)  # fmt: skip


def handle_saved(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply a durable checkpoint: the attempt had reached its step before it began to save."""
    if run_of_event(book, event) is not None:
        step, took = event.facts["step"], float(event.facts.get("save_took_s") or 0.0)
        record_step(book, event.facts.get("step_at") or event.at - took, step)
        book.saved = max(step, book.saved or 0)
        add_marks(book, event)
        add_saving_time(book, event, event.at)


def add_marks(book: AccountBuilder, event: HistoryEvent) -> None:
    """Remember the best step and the newest milestone, if the event names them."""
    names = ("best_step", "milestone")
    book.marks = {
        **book.marks,
        **{name: event.facts[name] for name in names if name in event.facts},
    }


def add_saving_time(book: AccountBuilder, event: HistoryEvent, at: float) -> None:
    """Account for the time in which the training stood still for checkpoints since the last word
    on them; it was some time before `at`."""
    run, facts = book.runs[-1], event.facts
    if facts.get("saves") is None:
        return
    blocked = float(facts.get("save_blocked_s") or 0.0)
    book.runs[-1] = replace(run, save_blocked_s=blocked)
    begun = run.progress_since
    if begun is None or run.attempt.first_step_at is None:
        return
    more = blocked - run.save_blocked_s
    if at - more > begun and more > 0:
        relabel_spans(book.spans, at - more, at, frozenset({GoodputState.PRODUCTIVE}),
                      GoodputState.SAVING)  # fmt: skip


def handle_ended(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply the end of an attempt, with the last sign of it before."""
    run, facts = run_of_event(book, event), event.facts
    if run is None:
        return
    verdict = Verdict(facts["verdict"])
    last_at = facts.get("last_at")
    if last_at is not None:
        last_at = min(max(float(last_at), run.attempt.launched_at), event.at)
        if verdict in UNNOTICED:
            relabel_spans(book.spans, last_at, event.at, *UNNOTICED[verdict])
    record_step(book, event.at if last_at is None else last_at, facts.get("step"))
    if facts.get("saved") is not None:
        book.saved = max(facts["saved"], book.saved or 0)
    add_marks(book, event)
    add_saving_time(book, event, event.at if last_at is None else last_at)
    run = book.runs[-1]
    if facts.get("unfit") and run.attempt.first_step_at is None:
        relabel_spans(book.spans, run.attempt.launched_at, event.at, RUNNING, GoodputState.STARTING)
    book.runs[-1] = replace(run, last_at=last_at, why=str(facts.get("why", "")))


def run_of_event(book: AccountBuilder, event: HistoryEvent) -> AttemptAccount | None:
    """The latest run, if the event is about it."""
    run = book.runs[-1] if book.runs else None
    return run if run is not None and run.attempt.id == event.facts["attempt"] else None


def record_step(book: AccountBuilder, at: float, step: int | None) -> None:
    """Record that a step was reached or saved then; it is seen work, if nothing before was."""
    if step is None:
        return
    attempt, points = book.runs[-1].attempt, book.points[-1]
    if attempt.first_step_at is None:
        relabel_spans(book.spans, attempt.launched_at, at, UNREPORTED, GoodputState.PRODUCTIVE)
    if points and step <= points[-1][1]:
        return
    points.append((max(at, points[-1][0]) if points else at, int(step)))
    book.reached = max(step, book.reached or 0)


def mark_wasted(book: AccountBuilder, resumed: int) -> None:
    """Mark all work beyond that step as wasted, since it is done again."""
    trial = book.runs[-1].attempt.trial
    for run, points in zip(reversed(book.runs[:-1]), reversed(book.points[:-1]), strict=True):
        if run.attempt.trial != trial:
            return  # another trial's work is not repeated
        if not points:
            continue
        if points[-1][1] < resumed:
            return  # it had reached a later step than it reported
        start, end = time_of_step(run, points, resumed), run.attempt.ended_at or book.at
        relabel_spans(
            book.spans, start, end, frozenset({GoodputState.PRODUCTIVE}), GoodputState.WASTED
        )
        if points[0][1] <= resumed:
            return


def build_account(book: AccountBuilder, now: float) -> SlotAccount:
    """Return the account up to now, or up to the removal of its job."""
    book = replace(book, spans=list(book.spans))  # later events may change earlier time
    if not book.slot_history.dropped and not has_ended(book):
        add_span(book, now, current_state(book))
    bids = tuple(book.slot_history.bids.values())
    billed = [bid for bid in bids if is_billed(bid)]
    costs = (*book.billed, *billed_spans(bids, now))
    return SlotAccount(
        slot=book.slot,
        job=book.job,
        start=book.start,
        end=book.at,
        state=current_state(book),
        spans=tuple(book.spans),
        runs=tuple(
            replace(run, points=tuple(points))
            for run, points in zip(book.runs, book.points, strict=True)
        ),
        bids=bids,
        step=book.reached,
        saved=book.saved,
        marks=book.marks,
        steps_lost=book.lost,
        cost=book.slot_history.spent + sum(bid_cost(bid, now) for bid in bids),
        moved=book.slot_history.moved,
        per_hour=sum(bid.offer.price or 0.0 for bid in billed),
        priced=all(span.per_hour is not None for span in costs),
        over_why=book.why,
        billed=costs,
        seconds=seconds_by_state(book.spans),
    )


def handle_bid_answer(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply the cloud's answer to a bid."""
    book.refused = event.kind == "bid.refused"
    book.granted = book.granted or event.kind != "bid.refused"


def handle_silence(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply that a host fell silent: what was done since its last sign of life is not known."""
    run = book.runs[-1] if book.runs else None
    if event.facts.get("code") == SILENT and run and attempt_state(book) is GoodputState.UNKNOWN:
        since = max(float(event.facts.get("since", event.at)), run.attempt.launched_at)
        relabel_spans(book.spans, since, event.at, WORKING, GoodputState.UNKNOWN)


def handle_return(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply that all hosts answer again, and say how long they stood still: the rest was work."""
    now, last = attempt_state(book), book.spans[-1] if book.spans else None
    if now is None or last is None or last.state not in NOT_KNOWN:
        return
    end = min(event.at, last.start + float(event.facts.get("paused_s") or 0.0))
    relabel_spans(book.spans, last.start, end, NOT_KNOWN, GoodputState.HUNG)
    relabel_spans(book.spans, end, event.at, NOT_KNOWN, now)


def handle_goal_change(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply the user's command."""
    if event.kind != "job.changed":
        book.stopped = event.kind == "job.stopped"
    book.goal = Goal(event.facts.get("goal", book.goal))


def handle_slot_end(book: AccountBuilder, event: HistoryEvent) -> None:
    """Apply the end of the slot's work."""
    book.why = str(event.facts.get("why", ""))


TELLS: Mapping[str, Callable[[AccountBuilder, HistoryEvent], None]] = {
    "job.submitted": handle_goal_change,
    "job.changed": handle_goal_change,
    "job.resumed": handle_goal_change,
    "job.stopped": handle_goal_change,
    "bid.granted": handle_bid_answer,
    "bid.ready": handle_bid_answer,
    "bid.refused": handle_bid_answer,
    "bid.unhealthy": handle_silence,
    "bid.healthy": handle_return,
    "attempt.first_step": handle_first_step,
    "attempt.saved": handle_saved,
    "attempt.ended": handle_ended,
    "slot.done": handle_slot_end,
    "slot.gave_up": handle_slot_end,
}
