"""What the store tells of jobs, slots and zones, for whoever asks: commands, and the library."""

from collections.abc import AsyncIterator, Iterable, Mapping
from fnmatch import filter as fitting
from typing import Any

from tpuherd.accounting.accounts import Ledger, closed
from tpuherd.accounting.goodput import Account, State
from tpuherd.clock import Clock
from tpuherd.errors import NotFound
from tpuherd.history.apply_event import ROUTINE
from tpuherd.jobs import engine_control
from tpuherd.jobs.ledger_cache import go_on, ledger
from tpuherd.jobs.open_project import no_job
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Event, Goal
from tpuherd.model.stored_job import Wish
from tpuherd.store.database import Database
from tpuherd.views.capacity_table import KINDS as OF_CAPACITY
from tpuherd.views.capacity_table import capacity as learnt
from tpuherd.views.event_lines import record
from tpuherd.views.job_rows import Scene, job_page, job_row, names_of, slots_of
from tpuherd.views.trouble_line import trouble_rows

RECENT = 6  #: events in `herd why`


def scene(store: Database, now: float, kept: Ledger | None = None) -> Scene:
    """All that is known now; with books that were kept, what has come since is read."""
    if kept is None:
        kept = ledger(store)
    return Scene(
        now=now,
        wishes=store.wishes(),
        accounts=closed(kept, now),
        states=store.states(),
        engine=engine_control.is_there(store, now),
        troubles=store.troubles.read(),
    )


def jobs(store: Database, now: float) -> list[dict[str, Any]]:
    """What `herd ls` shows: a row for each job."""
    seen = scene(store, now)
    left = {one.job for one in seen.accounts.values() if one.bids}  # also of those dropped
    return [job_row(seen, job) for job in sorted({*seen.wishes, *left})]


def status(store: Database, now: float, name: str) -> dict[str, Any]:
    """What `herd status` shows of a job or a slot."""
    job, slot = named(store, name)
    seen = scene(store, now)
    names = names_of(seen, job) if slot is None else (slot,)
    return job_page(seen, job, names)


def why(
    store: Database, now: float, name: str
) -> tuple[Mapping[str, str], list[tuple[int, Event]], bool]:
    """The sentence of each slot, what happened last, and whether an engine runs."""
    job, slot = named(store, name)
    wish = store.wishes().get(job)
    states = store.states()
    there = tuple(one for one in states if one.rpartition("-")[0] == job)
    names = (slot,) if slot is not None else (wish and slots_of(wish)) or there
    found = store.events(job=job, slot=slot, limit=RECENT * 5, newest=True)
    recent = [(seq, event) for seq, event in found if event.kind not in ROUTINE]
    running = engine_control.is_there(store, now)
    return {one: states.get(one, "") for one in names}, recent[-RECENT:], running


def why_told(store: Database, now: float, name: str) -> dict[str, Any]:
    """The same as `herd why --json` tells it."""
    slots, recent, engine = why(store, now, name)
    told = [record(seq, one) for seq, one in recent]
    troubles = trouble_rows(store.troubles.read())
    return {"slots": dict(slots), "engine": engine, "recent": told, "troubles": troubles}


def capacity(store: Database, now: float) -> list[dict[str, Any]]:
    """What `herd capacity` shows."""
    return learnt((event for _, event in store.events(kinds=OF_CAPACITY)), now)


def named(store: Database, name: str) -> tuple[str, str | None]:
    """Which job, or which slot of it, is meant: no other's, and one that there is or was."""
    wishes = store.wishes()
    head, _, tail = name.rpartition("-")
    if name in wishes or any(store.events(job=name, limit=1)):
        return name, None
    slots = slots_of(wishes[head]) if head in wishes else ()
    if tail.isdecimal() and (name in slots or any(store.events(slot=name, job=head, limit=1))):
        return head, name
    raise NotFound(no_job(name, wishes))


AWAITED = "{} has no node yet: herd why says what it waits for"
DONE = "{} is finished and has no node any more: herd logs shows its output"
GAVE_UP = "{} is finished and has no node any more: it gave up, and herd why says why"
STOPPED = "{} is stopped and has no node: herd resume lets it go on"


def say_without_nodes(store: Database, now: float) -> dict[str, str]:
    """What is to be said of each job and slot ({}) if no node of it is there."""
    seen = scene(store, now)
    said: dict[str, str] = {}
    for wish in seen.wishes.values():
        if wish.goal is Goal.GONE:
            said |= dict.fromkeys((wish.job, *wish.slots), STOPPED)
            continue
        each = {name: say_without_node(seen.accounts.get(name)) for name in slots_of(wish)}
        said |= each
        words = set(each.values())
        ended = words <= {DONE, GAVE_UP}
        said[wish.job] = words.pop() if len(words) == 1 else GAVE_UP if ended else AWAITED
    return said


def say_without_node(account: Account | None) -> str:
    """The same of one slot."""
    state = None if account is None else account.state
    return DONE if state is State.DONE else GAVE_UP if state is State.GAVE_UP else AWAITED


def last_submitted(store: Database, job: str) -> tuple[int, Event] | None:
    """The event with which a job began, the last one of this name."""
    found = store.events(job=job, kinds=("wish.made",), limit=1, newest=True)
    return next(iter(found), None)


ENDED = 5  #: the status of what ended without its command's own end
LOOK_S = 0.2


def chosen(names: Iterable[str], wishes: Mapping[str, Wish]) -> tuple[str, ...]:
    """The jobs of these names, or of patterns such as gpt-*; each that is said must be there."""
    found: list[str] = []
    for name in names:
        fit = [name] if name in wishes else fitting(wishes, name)
        if not fit:
            raise NotFound(no_job(name, wishes))
        found += fit
    return tuple(dict.fromkeys(found))


async def endings(
    jobs: Iterable[str], store: Database, clock: Clock, *, timeout_s: float | None
) -> AsyncIterator[tuple[str, int, str]]:
    """Each job as it ends, with its exit status and why; no more when the time is over."""
    left, version, kept = list(jobs), -1, ledger(store)
    end = None if timeout_s is None else clock.now() + timeout_s
    while True:
        before, version = version, store.version()
        if version != before:
            go_on(kept, store)
            seen = scene(store, clock.now(), kept)
            for job in tuple(left):
                if (found := ending(seen, job)) is not None:
                    left.remove(job)
                    yield job, *found
        if not left or (end is not None and clock.now() >= end):
            return
        await clock.sleep(LOOK_S)


def ending(seen: Scene, job: str) -> tuple[int, str] | None:
    """The exit status of a job and why; None while it goes on.

    0 when every slot has succeeded (or its node is ready, where only that is wished); the greatest
    status of a command that failed for good; else 5.
    """
    wish = seen.wishes.get(job)
    if wish is None:
        return ENDED, f"{job} was dropped"
    if wish.goal is Goal.GONE:
        return ENDED, f"{job} is stopped"
    found = [of_slot(wish, seen.accounts.get(name)) for name in slots_of(wish)]
    if any(one is None for one in found):
        return None
    return max((one for one in found if one is not None), default=(0, f"{job} has no slots"))


def of_slot(wish: Wish, account: Account | None) -> tuple[int, str] | None:
    """The same of one slot."""
    if account is None:
        return None
    if account.state is State.DONE:
        return 0, f"{account.slot} is done"
    if account.state is State.IDLE and wish.goal is Goal.IDLE:
        return 0, f"{account.slot} is ready"
    if account.state is not State.GAVE_UP:
        return None
    last = account.runs[-1].attempt if account.runs else None
    failed = last is not None and last.verdict is Verdict.FAILURE
    status = last.exit if last is not None and failed and last.exit else ENDED
    return status, f"{account.slot} gave up: {account.over_why}"
