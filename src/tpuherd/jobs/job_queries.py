"""Queries the store about jobs, slots and zones, for commands and the Python API."""

from collections.abc import AsyncIterator, Iterable, Mapping
from fnmatch import filter as fitting
from typing import Any

from tpuherd.accounting.accounts import Ledger, current_accounts
from tpuherd.accounting.goodput import AttemptAccount, GoodputState, SlotAccount
from tpuherd.clock import Clock
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.jobs import engine_control
from tpuherd.jobs.ledger_cache import load_ledger, read_new_events
from tpuherd.jobs.open_project import no_job_message
from tpuherd.model.receivers import WITHHELD_REASONS
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database
from tpuherd.views.capacity_table import KINDS as OF_CAPACITY
from tpuherd.views.capacity_table import capacity_hours
from tpuherd.views.capacity_table import capacity_rows as learnt
from tpuherd.views.finding_lines import finding_row
from tpuherd.views.job_rows import StoreView, job_page, job_row, job_slot_names, wanted_slots
from tpuherd.views.map_table import MAP_KINDS, map_page
from tpuherd.views.trouble_line import problem_rows

#: The latest of these says whether the slot has failed, and why.
TELLING = ("slot.prepared", "slot.setup_failed", "attempt.launched", "attempt.ended")


def load_scene(store: Database, now: float, kept: Ledger | None = None) -> StoreView:
    """Load everything known now; a given ledger is brought up to date."""
    if kept is None:
        kept = load_ledger(store)
    return StoreView(
        now=now,
        stored_jobs=store.stored_jobs(),
        accounts=current_accounts(kept, now),
        states=store.slot_messages(),
        map_ends={job: one.map_end for job, one in kept.jobs.items() if one.map_end is not None},
        engine=engine_control.is_engine_running(store, now),
        troubles=store.troubles.read(),
    )


def job_rows(store: Database, now: float) -> list[dict[str, Any]]:
    """Return the rows of `herd ls`, one per job."""
    view = load_scene(store, now)
    left = {one.job for one in view.accounts.values() if one.bids}  # includes removed jobs
    return [job_row(view, job) for job in sorted({*view.stored_jobs, *left})]


def job_status(store: Database, now: float, name: str) -> dict[str, Any]:
    """Return what `herd status` shows of a job or a slot."""
    return job_status_accounts(store, now, name)[0]


def job_status_accounts(
    store: Database, now: float, name: str
) -> tuple[dict[str, Any], Mapping[str, SlotAccount]]:
    """Return that, and the accounts from which a terminal gets timelines."""
    job, slot = resolve_name(store, name)
    view = load_scene(store, now)
    names = job_slot_names(view, job) if slot is None else (slot,)
    return job_page(view, job, names), view.accounts


def job_attempts(store: Database, now: float, name: str) -> list[tuple[str, AttemptAccount]]:
    """Return the attempts of a job or slot, each with its slot; none if there is no such name."""
    try:
        job, slot = resolve_name(store, name)
    except NotFound:
        return []
    accounts = load_scene(store, now).accounts
    return [
        (name, run)
        for name, account in accounts.items()
        if account.job == job and slot in (None, name)
        for run in account.runs
    ]


def why_as_json(store: Database, now: float, name: str) -> dict[str, Any]:
    """Return the output of `herd why --json`."""
    job, slot = resolve_name(store, name)
    stored = store.stored_jobs().get(job)
    states = store.slot_messages()
    there = tuple(one for one in states if one.rpartition("-")[0] == job)
    names = (slot,) if slot is not None else (stored and wanted_slots(stored)) or there
    return {
        "slots": {one: states.get(one, "") for one in names},
        "findings": slot_findings(store, names),
        "withheld": withheld_rows(store, name),
        "engine": engine_control.is_engine_running(store, now),
        "problems": problem_rows(store.troubles.read()),
    }


def withheld_rows(store: Database, name: str) -> list[dict[str, Any]]:
    """Return the job's receivers that the engine does not use, each with the reason."""
    job, _ = resolve_name(store, name)
    rows = []
    for _, event in store.read_events(job=job, kinds=("notify.withheld",), limit=1, newest=True):
        for one in event.facts["receivers"]:
            reason = WITHHELD_REASONS.get(one["code"], "it is not used")
            why = reason.format(engine=event.facts["engine"])
            rows.append({"receiver": one["receiver"], "code": one["code"], "why": why})
    return rows


def slot_findings(store: Database, slots: Iterable[str]) -> dict[str, Any]:
    """Return what explains the failure of slots whose latest attempt or setup has failed."""
    found = {}
    for slot in slots:
        job = slot.rpartition("-")[0]
        for _, event in store.read_events(job=job, slot=slot, kinds=TELLING, limit=1, newest=True):
            row = event_finding(event.facts)
            if row is not None:
                found[slot] = row
    return found


def event_finding(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what explains the failure that an event reports, if a rule does."""
    id = str(facts.get("finding", ""))
    if not id:
        return None
    lines = [*facts.get("lines", ())]
    hosts = [host for host in facts.get("hosts", ()) if isinstance(host, Mapping)]
    lines += [line for host in hosts for line in host.get("tail", ())]
    return finding_row(id, lines, str(facts.get("bid", "")))


def capacity_rows(store: Database, now: float) -> list[dict[str, Any]]:
    return learnt((event for _, event in store.read_events(kinds=OF_CAPACITY)), now)


def capacity_page(store: Database, now: float) -> dict[str, Any]:
    """Return what zones gave, in all and by the hour of the day."""
    events = [event for _, event in store.read_events(kinds=OF_CAPACITY)]
    return {"rows": learnt(events, now), "hours": capacity_hours(events)}


def resolve_name(store: Database, name: str) -> tuple[str, str | None]:
    """Return the job, and the slot if the name is a slot's; NotFound if there never was one."""
    jobs = store.stored_jobs()
    head, _, tail = name.rpartition("-")
    if name in jobs or any(store.read_events(job=name, limit=1)):
        return name, None
    slots = wanted_slots(jobs[head]) if head in jobs else ()
    if tail.isdecimal() and (name in slots or any(store.read_events(slot=name, job=head, limit=1))):
        return head, name
    raise NotFound(no_job_message(name, jobs))


AWAITED = "{} has no node yet: `herd why` shows what it waits for"
DONE = "{} is finished and its node is deleted: `herd logs` shows its output"
GAVE_UP = "{} gave up and its node is deleted: `herd why` shows the reason"
STOPPED = "{} is stopped and has no node: `herd resume` continues it"


def no_node_messages(store: Database, now: float) -> dict[str, str]:
    """Return what to say of each job and slot ({}) that has no node."""
    view = load_scene(store, now)
    states: dict[str, str] = {}
    for stored in view.stored_jobs.values():
        if stored.goal is Goal.GONE:
            states |= dict.fromkeys((stored.job, *stored.slot_names), STOPPED)
            continue
        each = {name: no_node_message(view.accounts.get(name)) for name in wanted_slots(stored)}
        states |= each
        words = set(each.values())
        ended = words <= {DONE, GAVE_UP}
        states[stored.job] = words.pop() if len(words) == 1 else GAVE_UP if ended else AWAITED
    return states


def no_node_message(account: SlotAccount | None) -> str:
    state = None if account is None else account.state
    return (
        DONE
        if state is GoodputState.DONE
        else GAVE_UP
        if state is GoodputState.GAVE_UP
        else AWAITED
    )


def last_submission(store: Database, job: str) -> tuple[int, HistoryEvent] | None:
    """Return the event that submitted the latest job of this name."""
    found = store.read_events(job=job, kinds=("job.submitted",), limit=1, newest=True)
    return next(iter(found), None)


ENDED = 5  #: exit status of a job that ended without its command ending
LOOK_S = 0.2


def match_jobs(names: Iterable[str], jobs: Mapping[str, StoredJob]) -> tuple[str, ...]:
    """Return the jobs with these names or patterns such as gpt-*; each must match a job."""
    found: list[str] = []
    for name in names:
        fit = [name] if name in jobs else fitting(jobs, name)
        if not fit:
            raise NotFound(no_job_message(name, jobs))
        found += fit
    return tuple(dict.fromkeys(found))


async def watch_job_ends(
    jobs: Iterable[str], store: Database, clock: Clock, *, timeout_s: float | None
) -> AsyncIterator[tuple[str, int, str]]:
    """Yield each job as it ends, with its exit status and reason, until the time is over."""
    left, version, kept = list(jobs), -1, load_ledger(store)
    end = None if timeout_s is None else clock.now() + timeout_s
    while True:
        before, version = version, store.change_counter()
        if version != before:
            read_new_events(kept, store)
            view = load_scene(store, clock.now(), kept)
            for job in tuple(left):
                if (found := job_ending(view, job)) is not None:
                    left.remove(job)
                    yield job, *found
        if not left or (end is not None and clock.now() >= end):
            return
        await clock.sleep(LOOK_S)


def job_ending(view: StoreView, job: str) -> tuple[int, str] | None:
    """Return the exit status of a job and the reason; None while it is active.

    0 when every slot has succeeded, or its node is ready if the job has no command; else the
    greatest status of a command that failed for good, or 5.
    """
    stored = view.stored_jobs.get(job)
    if stored is None:
        return ENDED, f"{job} was removed"
    if job in view.map_ends:
        return view.map_ends[job]
    found = [slot_ending(stored, view.accounts.get(name)) for name in stored.slot_names]
    if stored.goal is Goal.GONE and any(one is None or one[0] for one in found):
        return ENDED, f"{job} is stopped"
    if any(one is None for one in found):
        return None
    if map_digest(stored.document):
        gave_up = [why for status, why in filter(None, found) if status]
        return (ENDED, f"items are left, and {gave_up[0]}") if gave_up else None
    return max((one for one in found if one is not None), default=(0, f"{job} has no slots"))


def slot_ending(stored: StoredJob, account: SlotAccount | None) -> tuple[int, str] | None:
    if account is None:
        return None
    if account.state is GoodputState.DONE:
        return 0, f"{account.slot} is done"
    if account.state is GoodputState.IDLE and stored.goal is Goal.IDLE:
        return 0, f"{account.slot} is ready"
    if account.state is not GoodputState.GAVE_UP:
        return None
    last = account.runs[-1].attempt if account.runs else None
    failed = last is not None and last.verdict is Verdict.FAILURE
    status = last.exit if last is not None and failed and last.exit else ENDED
    return status, f"{account.slot} gave up: {account.over_why}"


def map_digest(document: Mapping[str, Any]) -> str:
    """The digest of the items of a job's map; "" if it is none."""
    sweep = document.get("sweep")
    return str(sweep.get("items", "")) if isinstance(sweep, Mapping) else ""


def map_status(store: Database, now: float, name: str) -> dict[str, Any]:
    """Return what `herd map status` shows."""
    job, _ = resolve_name(store, name)
    events = (event for _, event in store.read_events(job=job, kinds=MAP_KINDS))
    page = map_page(job, events, now)
    if page is None:
        raise InvalidInput(f"{job} is not a map", hint="start one with `herd map`")
    return page
