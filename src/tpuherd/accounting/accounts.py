"""Build the accounts of all slots from the event log."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tpuherd.accounting.costs import billed_spans
from tpuherd.accounting.goodput import REST, BilledSpan, SlotAccount
from tpuherd.accounting.slot_account import (
    AccountBuilder,
    add_event,
    build_account,
    current_state,
)
from tpuherd.history.event_kinds import has_required_facts
from tpuherd.model.slots_and_plan import Goal, HistoryEvent


@dataclass(slots=True)
class JobTimes:
    made_at: float
    changed_at: float
    goal: Goal = Goal.RUN
    stopped: bool = False
    map_end: tuple[int, str] | None = None  #: of a map whose items have ended: exit status, reason


@dataclass(slots=True)
class Ledger:
    """All accounts, up to the last event that was read."""

    seq: int = 0  #: of the last event in it
    jobs: dict[str, JobTimes] = field(default_factory=dict)
    books: dict[str, AccountBuilder] = field(default_factory=dict)
    past: dict[str, list[BilledSpan]] = field(default_factory=dict)
    #: by job, of earlier jobs of the same name


def build_accounts(events: Iterable[HistoryEvent], now: float) -> dict[str, SlotAccount]:
    """Return the account of every slot in these events, by name."""
    ledger = Ledger()
    for event in events:
        post_event(ledger, event)
    return current_accounts(ledger, now)


def current_accounts(ledger: Ledger, now: float) -> dict[str, SlotAccount]:
    """Return every account as of now; more events may be posted afterwards."""
    return {name: build_account(book, now) for name, book in sorted(ledger.books.items())}


def post_event(ledger: Ledger, event: HistoryEvent) -> None:
    """Add an event to the accounts that it concerns."""
    if not event.job or not has_required_facts(event):
        return
    books = ledger.books
    if event.slot:
        book = books.get(event.slot)
        if book is None:
            others = any(other.job == event.job for other in books.values())
            book = books[event.slot] = start_builder(
                event, ledger.jobs.get(event.job), others=others
            )
        add_event(book, event)
        return
    ledger.jobs[event.job] = update_job_times(ledger.jobs.get(event.job), event)
    for name, book in list(books.items()):
        if book.job != event.job:
            continue
        if event.kind == "job.submitted" and current_state(book) in REST:
            del books[name]  # it had ended; the job was submitted again
            spans = (*book.billed, *billed_spans(book.slot_history.bids.values(), event.at))
            ledger.past.setdefault(event.job, []).extend(spans)
        else:
            add_event(book, event)


def update_job_times(job: JobTimes | None, event: HistoryEvent) -> JobTimes:
    """Return the job after an event that belongs to no single slot."""
    goal = Goal(event.facts.get("goal", Goal.RUN if job is None else job.goal))
    if job is None or event.kind == "job.submitted":
        return JobTimes(made_at=event.at, changed_at=event.at, goal=goal)
    stopped = (job.stopped or event.kind == "job.stopped") and event.kind != "job.resumed"
    changed = event.at if event.kind == "job.changed" else job.changed_at
    map_end = None if event.kind == "map.started" else job.map_end
    if event.kind == "map.ended":
        map_end = int(event.facts["exit"]), str(event.facts.get("why", ""))
    return JobTimes(
        made_at=job.made_at, changed_at=changed, goal=goal, stopped=stopped, map_end=map_end
    )


def start_builder(event: HistoryEvent, job: JobTimes | None, *, others: bool) -> AccountBuilder:
    """Open the account of a new slot; a change of the job can add slots later."""
    if job is None:
        return AccountBuilder(slot=event.slot, job=event.job, start=event.at, at=event.at)
    start = min(event.at, job.changed_at if others else job.made_at)
    return AccountBuilder(slot=event.slot, job=event.job, start=start, at=start, goal=job.goal)
