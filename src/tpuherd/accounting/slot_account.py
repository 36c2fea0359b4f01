"""The book of one slot: its part of the event log, folded into where its time went.

What an event tells is true from then on, and some tell what was true before: an end names the last
sign of life, a first step the checkpoint that it came from. Then the time since is painted over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tpuherd.accounting.goodput import Account, Run, Span, State, totals
from tpuherd.history.apply_event import fold_trail
from tpuherd.model.slot_history import Bid, Trail, Verdict, cost
from tpuherd.model.slots_and_plan import Event, Goal

WORKING = frozenset({State.PRODUCTIVE, State.STARTING, State.RESTORE})
#: What the time between the last sign of an attempt and the record of its end was.
UNNOTICED: Mapping[Verdict, tuple[frozenset[State], State]] = {
    Verdict.SUCCESS: (WORKING, State.CONTROLLER_GAP),
    Verdict.FAILURE: (WORKING, State.PROCESS_DOWN),
    Verdict.PREEMPTED: (WORKING, State.DETECT),
    Verdict.NODE_FAULT: (WORKING, State.DETECT),
    Verdict.LOST: (WORKING, State.DETECT),
    Verdict.STALLED: (WORKING, State.HUNG),
    Verdict.STOPPED: (frozenset({State.PRODUCTIVE}), State.HUNG),
}


@dataclass(slots=True)
class Book:
    """What is known of one slot while its events are read."""

    slot: str
    job: str
    start: float
    at: float
    goal: Goal = Goal.RUN
    stopped: bool = False
    trail: Trail = field(default_factory=Trail)
    spans: list[Span] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    points: list[list[tuple[float, int]]] = field(default_factory=list)  #: of each run
    granted: bool = False  #: ever
    refused: bool = False  #: the cloud's last word to a bid was no
    steps: bool = False  #: ever told of one
    reached: int | None = None
    saved: int | None = None
    lost: int = 0
    why: str = ""


def note(book: Book, event: Event) -> None:
    """Write down the time until the event, and then what it tells.

    The time of a slot that is over and has given everything back stands still until it lives again.
    """
    over = state(book) if has_ended(book) else None
    if over is None:
        pass_time(book, event.at)
    read_event(book, event)
    if over is not None and not has_ended(book):
        add_span(book, event.at, over)


def has_ended(book: Book) -> bool:
    """Nothing is wanted of the slot any more, and nothing of it is left."""
    trail = book.trail
    over = (
        book.stopped or trail.dropped or trail.done_at is not None or trail.gave_up_at is not None
    )
    runs = trail.attempt is not None and trail.attempt.ended_at is None
    return over and not runs and not trail.bids


def read_event(book: Book, event: Event) -> None:
    """What it tells of the slot."""
    if event.kind == "attempt.saved":  # the many: they change nothing else here
        saved(book, event)
        return
    if event.kind == "attempt.launched":
        launched(book, event)
    book.trail = fold_trail(book.trail, event)
    if book.runs and book.trail.attempt is not None:
        last = book.runs[-1]
        if last.attempt.id == book.trail.attempt.id:
            book.runs[-1] = replace(last, attempt=book.trail.attempt)
    if event.kind in TELLS:
        TELLS[event.kind](book, event)


def pass_time(book: Book, until: float) -> None:
    """The state that held until now."""
    add_span(book, until, state(book))


def add_span(book: Book, until: float, now: State) -> None:
    """In this state until then; a clock that goes back stands still here."""
    if until <= book.at:
        return
    if book.spans and book.spans[-1].state is now:
        book.spans[-1] = Span(start=book.spans[-1].start, end=until, state=now)
    else:
        book.spans.append(Span(start=book.at, end=until, state=now))
    book.at = until


def state(book: Book) -> State:
    """What the slot's time is spent on, as far as the events tell by now."""
    trail = book.trail
    if book.stopped or trail.dropped:
        return State.STOPPED
    if trail.done_at is not None:
        return State.DONE
    if trail.gave_up_at is not None:
        return State.GAVE_UP
    return running(book) or held(book)


def running(book: Book) -> State | None:
    """What its attempt does; None if it has none, or its node is lost."""
    attempt = book.trail.attempt
    if attempt is None or attempt.ended_at is not None:
        return None
    bid = book.trail.bids.get(attempt.bid)
    if bid is None or bid.lost_at is not None:
        return None
    if attempt.stopping_at is not None:
        return State.STOPPING
    if attempt.started_at is None or (book.steps and attempt.first_step_at is None):
        return State.STARTING
    return State.PRODUCTIVE


def held(book: Book) -> State:
    """What its bids do, where no attempt runs."""
    there = held_bids(book.trail.bids.values())
    ready = [bid for bid in there if bid.ready_at is not None]
    if any(bid.prepared for bid in ready):
        if book.goal is Goal.IDLE or not book.runs:
            return State.IDLE
        last = book.trail.attempt
        here = last is not None and any(bid.name == last.bid for bid in ready)
        failed = here and last is not None and last.trial == book.trail.trial
        return State.PROCESS_DOWN if failed else State.CONTROLLER_GAP
    if ready:
        return State.HOST_SETUP
    if any(bid.granted_at is not None for bid in there):
        return State.PROVISION
    waits = book.refused or any(bid.refusal is None for bid in there)
    if waits:
        return State.CAPACITY_WAIT if book.granted else State.QUEUE_FIRST
    return State.CONTROLLER_GAP


def held_bids(bids: Iterable[Bid]) -> list[Bid]:
    """Those that may still come to something."""
    return [bid for bid in bids if bid.lost_at is None and bid.withdrawn_at is None]


def launched(book: Book, event: Event) -> None:
    """Another attempt begins; the same one sent again does not."""
    if book.runs and book.runs[-1].attempt.id == event.facts["attempt"]:
        return
    trail = fold_trail(book.trail, event)
    bid = trail.bids.get(event.facts["bid"])
    zone, type = (bid.offer.zone, bid.offer.type) if bid else ("", "")
    assert trail.attempt is not None
    if book.runs and book.runs[-1].attempt.trial != trail.attempt.trial:
        book.reached = book.saved = None  # of a sweep: steps are counted anew
    book.runs.append(Run(attempt=trail.attempt, zone=zone, type=type))
    book.points.append([])


def stepped(book: Book, event: Event) -> None:
    """The first step of an attempt: what was before it is known now, and where it came from."""
    run, facts = current(book, event), event.facts
    if run is None:
        return
    if not book.steps:
        book.steps = True
        for one in book.runs:  # none of them had got on before
            until = event.at if one is run else one.attempt.ended_at or event.at
            paint(book, one.attempt.launched_at, until, frozenset({State.PRODUCTIVE}),
                  State.STARTING)  # fmt: skip
    restored = float(facts.get("restore_s") or 0.0)
    if restored:
        start = max(run.attempt.launched_at, event.at - restored)
        paint(book, start, event.at, frozenset({State.STARTING}), State.RESTORE)
    resumed = resumed_from(book, run, facts)
    if resumed is not None and len(book.runs) > 1:
        waste(book, resumed)
        if book.reached is not None:
            book.lost += max(0, book.reached - resumed)
            book.reached = resumed
        book.saved = resumed  # a checkpoint beyond it was none
    startup = {**(facts.get("startup") or {}), **({"restore_s": restored} if restored else {})}
    book.runs[-1] = replace(run, resumed=resumed, startup=startup)
    at_step(book, event.at, facts.get("step"))


def resumed_from(book: Book, run: Run, facts: Mapping[str, Any]) -> int | None:
    """The step of its checkpoint: as told, else the furthest there was that explains its step."""
    if facts.get("resumed") is not None:
        return int(facts["resumed"])
    if run.attempt.number == 1:
        return 0
    return min((one for one in (book.saved, facts.get("step")) if one is not None),
               default=None)  # fmt: skip


def saved(book: Book, event: Event) -> None:
    """A checkpoint is durable: it has come at least so far."""
    if current(book, event) is not None:
        step = event.facts["step"]
        at_step(book, event.facts.get("step_at") or event.at, step)
        book.saved = max(step, book.saved or 0)


def ended(book: Book, event: Event) -> None:
    """An end, and when the last was seen of it before."""
    run, facts = current(book, event), event.facts
    if run is None:
        return
    verdict = Verdict(facts["verdict"])
    last_at = facts.get("last_at")
    if last_at is not None:
        last_at = min(max(float(last_at), run.attempt.launched_at), event.at)
        if verdict in UNNOTICED:
            paint(book, last_at, event.at, *UNNOTICED[verdict])
    at_step(book, event.at if last_at is None else last_at, facts.get("step"))
    if facts.get("saved") is not None:
        book.saved = max(facts["saved"], book.saved or 0)
    if facts.get("unfit") and run.attempt.first_step_at is None:
        paint(book, run.attempt.launched_at, event.at, frozenset({State.PRODUCTIVE}),
              State.STARTING)  # fmt: skip
    book.runs[-1] = replace(run, last_at=last_at, why=str(facts.get("why", "")))


def current(book: Book, event: Event) -> Run | None:
    """The latest attempt, if the event tells of it."""
    run = book.runs[-1] if book.runs else None
    return run if run is not None and run.attempt.id == event.facts["attempt"] else None


def at_step(book: Book, at: float, step: int | None) -> None:
    """It was known to be there then."""
    points = book.points[-1]
    if step is None or (points and step <= points[-1][1]):
        return
    points.append((max(at, points[-1][0]) if points else at, int(step)))
    book.reached = max(step, book.reached or 0)


def waste(book: Book, resumed: int) -> None:
    """All work beyond that step is done again."""
    trial = book.runs[-1].attempt.trial
    for run, points in zip(reversed(book.runs[:-1]), reversed(book.points[:-1]), strict=True):
        if run.attempt.trial != trial:
            return  # another trial's work counts as it is
        if not points:
            continue
        if points[-1][1] < resumed:
            return  # it had come further than anybody told
        start, end = reached_at(run, points, resumed), run.attempt.ended_at or book.at
        paint(book, start, end, frozenset({State.PRODUCTIVE}), State.WASTED)
        if points[0][1] <= resumed:
            return


def reached_at(run: Run, points: Sequence[tuple[float, int]], step: int) -> float:
    """When an attempt came to that step: between two times told of, in proportion."""
    before = (run.works_at or run.attempt.launched_at, run.resumed)
    for at, there in points:
        if there >= step:
            start, low = before
            if low is None or there == low or step <= low:
                return at if there == step else start
            return start + (at - start) * (step - low) / (there - low)
        before = (at, there)
    return before[0]


def paint(book: Book, start: float, end: float, over: frozenset[State], new: State) -> None:
    """Between two times, what was in these states is in another one."""
    painted: list[Span] = []
    while book.spans and book.spans[-1].end > start:
        span = book.spans.pop()
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
                painted.append(Span(start=left, end=right, state=what))
    for span in reversed(painted):
        if book.spans and book.spans[-1].state is span.state:
            span = replace(span, start=book.spans.pop().start)
        book.spans.append(span)


def account(book: Book, now: float) -> Account:
    """The account as it stands now; a wish that was taken back has ended then."""
    book = replace(book, spans=list(book.spans))  # what comes next may tell of before
    if not book.trail.dropped and not has_ended(book):
        pass_time(book, now)
    bids = tuple(book.trail.bids.values())
    billed = [bid for bid in bids if bills(bid)]
    return Account(
        slot=book.slot,
        job=book.job,
        start=book.start,
        end=book.at,
        state=state(book),
        spans=tuple(book.spans),
        runs=tuple(
            replace(run, points=tuple(points))
            for run, points in zip(book.runs, book.points, strict=True)
        ),
        bids=bids,
        step=book.reached,
        saved=book.saved,
        steps_lost=book.lost,
        cost=book.trail.spent + sum(cost(bid, now) for bid in bids),
        per_hour=sum(bid.offer.price or 0.0 for bid in billed),
        priced=all(bid.offer.price is not None for bid in billed),
        over_why=book.why,
        seconds=totals(book.spans),
    )


def bills(bid: Bid) -> bool:
    """Whether it costs money now."""
    over = bid.lost_at is not None or bid.freed_at is not None
    return (bid.ready_at or bid.granted_at) is not None and not over


def answered(book: Book, event: Event) -> None:
    """The cloud's word to a bid."""
    book.refused = event.kind == "bid.refused"
    book.granted = book.granted or event.kind != "bid.refused"


def stop(book: Book, event: Event) -> None:
    """The user's word."""
    if event.kind != "wish.changed":
        book.stopped = event.kind == "wish.stopped"
    book.goal = Goal(event.facts.get("goal", book.goal))


def over(book: Book, event: Event) -> None:
    """Nothing more is to be done."""
    book.why = str(event.facts.get("why", ""))


TELLS: Mapping[str, Callable[[Book, Event], None]] = {
    "wish.made": stop,
    "wish.changed": stop,
    "wish.resumed": stop,
    "wish.stopped": stop,
    "bid.granted": answered,
    "bid.ready": answered,
    "bid.refused": answered,
    "attempt.stepped": stepped,
    "attempt.saved": saved,
    "attempt.ended": ended,
    "slot.done": over,
    "slot.gave_up": over,
}
