"""Record an engine's crash: an event, a problem in `herd why`, and growing pauses."""

from collections.abc import Iterator

from tpuherd.clock import WallClock
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.trouble import ENGINE
from tpuherd.store.database import Database
from tpuherd.store.schema import FORMAT
from tpuherd.views.format_text import format_span

CRASHED, STARTED, STOPPED = "engine.crashed", "engine.started", "engine.stopped"
PAUSE_S, PAUSE_S_MAX = 5.0, 300.0
CALM_S = 60.0  #: an engine that has run this long has recovered
ROW_S = 900.0  #: crashes further apart than this are counted separately
WITHOUT_A_WORD = "it was killed, ran out of memory, or the machine went down"
RENEW_S = 10.0


def count_recent_crashes(store: Database, now: float) -> int:
    """How many crashes came in a row, without an engine that ended normally."""
    for _, event in store.read_events(kinds=(CRASHED, STOPPED), limit=1, newest=True):
        if event.kind == CRASHED and now - event.at < ROW_S:
            return int(event.facts.get("count", 1))
    return 0


def record_crash(store: Database, why: str, now: float, *, killed: bool = False) -> float:
    """Record a crash, show a repeated one as a problem, and return how long to wait.

    A killed engine causes no wait: something else ended it, and it does not restart by itself.
    """
    count = count_recent_crashes(store, now) + 1
    pause_s = 0.0 if killed else min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(count - 1, 10))
    facts = {"count": count, "why": why, "retry_in_s": pause_s}
    store.append_events([HistoryEvent(at=now, kind=CRASHED, facts=facts)])
    if count > 1:
        sentence = f"it ended unexpectedly {count} times in a row: {why}"
        again = f"; it starts again in {format_span(pause_s)}" if pause_s else ""
        store.troubles.record_trouble(
            ENGINE, sentence, hint=f"see herd engine logs{again}", now=now
        )
    return pause_s


def record_kill(store: Database, now: float) -> None:
    """Record the crash of the previous engine, if it ended without recording why.

    One of an earlier herd could not: it ended because the store's format is another now.
    """
    for _, event in last_lifecycle_event(store):
        if event.kind == STARTED and event.facts.get("format") == FORMAT:
            record_crash(store, WITHOUT_A_WORD, now, killed=True)


def last_lifecycle_event(store: Database) -> Iterator[tuple[int, HistoryEvent]]:
    """The event of the previous engine's last start or end."""
    return store.read_events(kinds=(STARTED, STOPPED, CRASHED), limit=1, newest=True)


async def hold_lease(store: Database, epoch: int, seconds: float) -> None:
    """Wait, and keep other engines from starting meanwhile: they would crash, too."""
    clock = WallClock()
    end = clock.now() + seconds
    while (now := clock.now()) < end:
        await clock.sleep(min(RENEW_S, end - now))
        store.renew_lease(epoch, clock.now())
