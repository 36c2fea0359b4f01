"""A job's story for a report: what happened when, what each loss has cost, what came of it all."""

from collections.abc import Iterator, Sequence

from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import SlotAccount, find_recoveries
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.event_lines import event_line
from tpuherd.views.format_text import format_money, format_share, format_span, format_table
from tpuherd.views.job_pages import recovery_text, time_cells
from tpuherd.views.job_rows import recovery_row

#: What belongs to the story; the rest is in `herd events`.
TOLD = frozenset({
    "wish.made", "bid.granted", "bid.ready", "bid.noticed", "bid.lost", "slot.prepared",
    "slot.unprepared", "slot.done", "slot.gave_up", "attempt.launched", "attempt.stepped",
    "attempt.stopping", "attempt.ended",
})  # fmt: skip


def job_timeline(events: Sequence[HistoryEvent], now: float) -> str:
    """Of all jobs in these events, slot by slot."""
    books = build_accounts(events, now)
    return "\n\n".join("\n".join(slot_timeline(book, events)) for book in books.values())


def slot_timeline(account: SlotAccount, events: Sequence[HistoryEvent]) -> Iterator[str]:
    """One slot."""
    yield account.slot
    for event in events:
        mine = event.slot == account.slot or (event.job == account.job and not event.slot)
        if mine and event.kind in TOLD and event.at >= account.start:
            yield f"  {format_clock(event.at - account.start)}  {event_line(event)}"
    for recovery in find_recoveries(account):
        yield f"  {recovery_text(recovery_row(recovery))}"
    yield "  where the time went"
    seconds = {str(state): time for state, time in account.seconds.items() if time}
    rows = [("", "", "", ""), *time_cells(seconds)]
    yield from (f"    {row}" for row in format_table(rows, right=(1, 2)).splitlines()[1:])
    yield (
        f"  goodput {format_share(account.goodput)} of {format_span(account.wanted_s)},"
        f" {account.steps_lost} steps lost in {len(find_recoveries(account))} losses,"
        f" cost {format_money(account.cost, known=account.priced)}"
    )


def format_clock(seconds: float) -> str:
    """1:02:03 since the wish."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    head = f"{hours}:" if hours else ""
    return f"{head}{rest // 60:02d}:{rest % 60:02d}"
