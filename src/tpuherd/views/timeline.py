"""A job's story for a report: what happened when, what each loss has cost, what came of it all."""

from collections.abc import Iterator, Sequence

from tpuherd.accounting.accounts import accounts
from tpuherd.accounting.goodput import Account, recoveries
from tpuherd.model.slots_and_plan import Event
from tpuherd.views.event_lines import line
from tpuherd.views.format_text import lined, money, share, span
from tpuherd.views.job_pages import recovery_text, time_cells
from tpuherd.views.job_rows import recovery_row

#: What belongs to the story; the rest is in `herd events`.
TOLD = frozenset({
    "wish.made", "bid.granted", "bid.ready", "bid.noticed", "bid.lost", "slot.prepared",
    "slot.unprepared", "slot.done", "slot.gave_up", "attempt.launched", "attempt.stepped",
    "attempt.stopping", "attempt.ended",
})  # fmt: skip


def timeline(events: Sequence[Event], now: float) -> str:
    """Of all jobs in these events, slot by slot."""
    books = accounts(events, now)
    return "\n\n".join("\n".join(story(book, events)) for book in books.values())


def story(account: Account, events: Sequence[Event]) -> Iterator[str]:
    """One slot."""
    yield account.slot
    for event in events:
        mine = event.slot == account.slot or (event.job == account.job and not event.slot)
        if mine and event.kind in TOLD and event.at >= account.start:
            yield f"  {clock(event.at - account.start)}  {line(event)}"
    for recovery in recoveries(account):
        yield f"  {recovery_text(recovery_row(recovery))}"
    yield "  where the time went"
    seconds = {str(state): time for state, time in account.seconds.items() if time}
    rows = [("", "", "", ""), *time_cells(seconds)]
    yield from (f"    {row}" for row in lined(rows, right=(1, 2)).splitlines()[1:])
    yield (
        f"  goodput {share(account.goodput)} of {span(account.wanted_s)},"
        f" {account.steps_lost} steps lost in {len(recoveries(account))} losses,"
        f" cost {money(account.cost, known=account.priced)}"
    )


def clock(seconds: float) -> str:
    """1:02:03 since the wish."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    head = f"{hours}:" if hours else ""
    return f"{head}{rest // 60:02d}:{rest % 60:02d}"
