"""Keeps the rows of the page and of `herd top` up to date, reading only what is new in the store.

    view = LiveView(store, samples, clock)
    view.refresh()      # Changes: the names of what differs since the last call
    view.build_overview()     # everything, as JSON
    view.change_rows(changes)   # only what changed

Rows change with events, messages and samples. Money and goodput also grow while nothing happens:
rows of slots with a node are therefore renewed now and then, a few at a time.
Use it only in the thread that opened the store.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta

from tpuherd.accounting.accounts import Ledger, post_event
from tpuherd.accounting.goodput import REST, SlotAccount
from tpuherd.accounting.slot_account import build_account
from tpuherd.clock import Clock
from tpuherd.errors import NotFound
from tpuherd.jobs import engine_control
from tpuherd.jobs.ledger_cache import load_ledger
from tpuherd.jobs.open_project import no_job_message
from tpuherd.jobs.project_metrics import project_metrics
from tpuherd.model.samples import HostSample
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.store.set_aside import read_notices
from tpuherd.views.job_rows import Json, StoreView, job_page, job_slot_names
from tpuherd.views.overview_rows import (
    NO_ENGINE,
    engine_row,
    job_kind,
    node_rows,
    overview_event_row,
    overview_job_row,
    overview_slot_rows,
    sampled_host_row,
    total_cost,
)
from tpuherd.views.slot_timeline import incident_rows, job_timeline, state_rows
from tpuherd.views.trouble_line import problem_rows

#: Rows of slots that cost or work are renewed when they are older than this part of the slot's
#: age, so that young jobs show their goodput, and at least once a minute.
RENEW_SHARE, RENEW_S_MIN, RENEW_S_MAX = 0.05, 2.0, 60.0
RENEWED_MAX = 50  #: at most so many at once
LOOK_S = 1.0  #: how often to look at what the store does not count: engine, problems, notices
EVENTS_MAX = 500  #: of one refresh; older ones are in the log

Names = frozenset[str]
NONE: Names = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The names of what differs since the refresh before."""

    jobs: Names = NONE
    slots: Names = NONE
    removed_jobs: Names = NONE
    removed_slots: Names = NONE
    nodes: Names = NONE
    removed_nodes: Names = NONE
    hosts: Names = NONE  #: with a new sample
    surroundings: bool = False  #: the engine, the problems or the notices
    events: tuple[Json, ...] = ()
    skipped_events: bool = False  #: there were more than EVENTS_MAX

    def __bool__(self) -> bool:
        return self.has_rows or bool(self.hosts or self.events)

    @property
    def has_rows(self) -> bool:
        """Whether more has changed than samples and the log."""
        rows = self.jobs or self.removed_jobs or self.nodes or self.removed_nodes
        return self.surroundings or bool(rows)


def join_changes(each: Iterable[Changes]) -> Changes:
    """What differs since before the first of these; a name may be changed and then removed."""
    found = Changes()
    for one in each:
        found = Changes(
            jobs=(found.jobs - one.removed_jobs) | one.jobs,
            slots=(found.slots - one.removed_slots) | one.slots,
            removed_jobs=(found.removed_jobs - one.jobs) | one.removed_jobs,
            removed_slots=(found.removed_slots - one.slots) | one.removed_slots,
            nodes=(found.nodes - one.removed_nodes) | one.nodes,
            removed_nodes=(found.removed_nodes - one.nodes) | one.removed_nodes,
            hosts=found.hosts | one.hosts,
            surroundings=found.surroundings or one.surroundings,
            events=(*found.events, *one.events),
            skipped_events=found.skipped_events or one.skipped_events,
        )
    return found


@dataclass(slots=True)
class Touched:
    """What one refresh must compute again."""

    slots: set[str] = field(default_factory=set)  #: their accounts
    messages: set[str] = field(default_factory=set)  #: slots with another message
    jobs: set[str] = field(default_factory=set)
    events: list[Json] = field(default_factory=list)
    skipped: bool = False


class LiveView:
    """All rows, as of the last refresh."""

    def __init__(self, store: Database, samples: SampleStore, clock: Clock) -> None:
        self._store = store
        self._sample_store = samples
        self._clock = clock
        self._ledger: Ledger = load_ledger(store)
        self._counter = -1
        self._looked_at = float("-inf")
        self._revisions: Mapping[str, tuple[int, float]] = {}
        self._stored: dict[str, StoredJob] = {}
        self._messages: Mapping[str, str] = {}
        self._accounts: dict[str, SlotAccount] = {}
        self._built_at: dict[str, float] = {}
        self._members: dict[str, dict[str, SlotAccount]] = {}  #: accounts by job
        self._job_rows: dict[str, Json] = {}
        self._slot_rows: dict[str, dict[str, Json]] = {}  #: by job
        self._nodes: dict[str, Json] = {}
        self._nodes_of: dict[str, Names] = {}  #: by slot
        self._surroundings: Json = {}
        self._samples: Mapping[str, HostSample] = {}
        self._samples_counter = -1
        self._hosts: dict[str, Json] = {}  #: rows without samples, by name
        self._midnight = (0.0, 0.0)  #: of the local day, and until when it is that day
        self._first = Touched(slots=set(self._ledger.books))

    def refresh(self) -> Changes:
        """Read what is new; raise HerdError if the store can't be read any more."""
        now = self._clock.now()
        touched, self._first = self._first, Touched()
        counter = self._store.change_counter()
        if counter != self._counter:
            self._store.check_format()
            self._read_events(touched)
            self._read_jobs(touched)
            self._read_messages(touched)
        around = False
        if counter != self._counter or not 0 <= now - self._looked_at < LOOK_S:
            around = self._look_around(now)
            touched.slots.update(self._aged_slots(now))
            self._looked_at = now
        self._counter = counter
        gone = self._build_accounts(touched.slots, now)
        changes = self._build_rows(touched, gone, now)
        return replace(
            changes,
            hosts=self._read_samples(),
            surroundings=around,
            events=tuple(touched.events),
            skipped_events=touched.skipped,
        )

    # ---- what is asked -------------------------------------------------------------------------

    def build_overview(self) -> Json:
        """All rows."""
        return {
            "now": self._clock.now(),
            **self._surroundings,
            "cost": self._cost(),
            "jobs": [self._job_json(job, self._slot_rows[job]) for job in sorted(self._job_rows)],
            "nodes": [self._node_json(name) for name in sorted(self._nodes)],
        }

    def change_rows(self, changes: Changes) -> Json:
        """The rows of what has changed, as they are now; of a job only the slots that changed."""
        jobs = []
        for job in sorted(changes.jobs & self._job_rows.keys()):
            rows = self._slot_rows[job]
            some = {name: row for name, row in rows.items() if name in changes.slots}
            gone = [name for name in changes.removed_slots if name.rpartition("-")[0] == job]
            jobs.append({**self._job_json(job, some), "removed_slots": sorted(gone)})
        return {
            "now": self._clock.now(),
            **self._surroundings,
            "cost": self._cost(),
            "jobs": jobs,
            "removed_jobs": sorted(changes.removed_jobs - self._job_rows.keys()),
            "nodes": [self._node_json(name) for name in sorted(changes.nodes & self._nodes.keys())],
            "removed_nodes": sorted(changes.removed_nodes - self._nodes.keys()),
        }

    def host_rows(self, hosts: Names) -> dict[str, Json]:
        """The rows of these hosts with their last samples; only of nodes that are shown."""
        return {name: self._host_json(name) for name in sorted(hosts & self._hosts.keys())}

    def build_metrics(self) -> str:
        """What Prometheus is told."""
        now = self._clock.now()
        return project_metrics(self._store, now, self._samples, self._ledger)

    def build_job_page(self, name: str) -> Json:
        """The page of one job, with its timeline; NotFound if there is none."""
        members, now = self._members.get(name, {}), self._clock.now()
        if name not in self._stored and not members:
            raise NotFound(no_job_message(name, self._stored))
        self._build_accounts(tuple(members), now)
        view = self._job_view(name, now)
        names = job_slot_names(view, name) or tuple(view.accounts)
        page = job_page(view, name, names)
        accounts = {one: view.accounts[one] for one in names if one in view.accounts}
        return {
            **page,
            "kind": job_kind(self._stored.get(name)),
            "timeline": job_timeline(accounts, now),
            "states": state_rows(),
            "incidents": incident_rows(page["slot_details"]),
        }

    # ---- what the store says -------------------------------------------------------------------

    def _read_events(self, touched: Touched) -> None:
        """Post new events; those of a whole job concern all of its slots."""
        rows = touched.events
        for seq, event in self._store.read_events(after=self._ledger.seq):
            post_event(self._ledger, event)
            self._ledger.seq = seq
            rows.append(overview_event_row(seq, event))
            if event.slot:
                touched.slots.add(event.slot)
            elif event.job:
                touched.jobs.add(event.job)
                touched.slots.update(self._members.get(event.job, ()))
        touched.skipped = len(rows) > EVENTS_MAX
        del rows[:-EVENTS_MAX]

    def _read_jobs(self, touched: Touched) -> None:
        found = self._store.job_revisions()
        for job in found.keys() | self._revisions.keys():
            if found.get(job) == self._revisions.get(job):
                continue
            stored = self._store.find_job(job) if job in found else None
            self._stored.pop(job, None)
            if stored is not None:
                self._stored[job] = stored
            touched.jobs.add(job)
        self._revisions = found

    def _read_messages(self, touched: Touched) -> None:
        found, before = self._store.slot_messages(), self._messages
        if found == before:
            return
        touched.messages.update(
            slot for slot in found.keys() | before.keys() if found.get(slot) != before.get(slot)
        )
        self._messages = found

    def _look_around(self, now: float) -> bool:
        """Look at the engine and at what goes wrong; return whether anything differs."""
        holder = self._store.lease_holder(now)
        found = {
            "engine": NO_ENGINE
            if holder is None
            else engine_row(
                since=holder.taken_at,
                host=holder.host,
                pid=holder.pid,
                version=engine_control.engine_version(self._store),
            ),
            "problems": problem_rows(self._store.troubles.read()),
            "notices": list(read_notices(self._store.folder).values()),
        }
        changed = found != self._surroundings
        self._surroundings = found
        return changed

    def _read_samples(self) -> Names:
        """Read the last samples if there are new ones; return the hosts that have one."""
        counter = self._sample_store.change_counter()
        if counter == self._samples_counter:
            return NONE
        self._samples_counter = counter
        found = self._sample_store.latest_hosts()
        before, self._samples = self._samples, found
        return frozenset(name for name, sample in found.items() if before.get(name) != sample)

    # ---- accounts and rows ---------------------------------------------------------------------

    def _aged_slots(self, now: float) -> Iterator[str]:
        """Slots whose money or time goes on, and whose rows are old."""
        many = 0
        for slot, at in self._built_at.items():
            account = self._accounts[slot]
            age = RENEW_SHARE * (now - account.start)
            if 0 <= now - at < min(RENEW_S_MAX, max(RENEW_S_MIN, age)):
                continue
            if account.per_hour or account.state not in REST:
                many += 1
                yield slot
            if many >= RENEWED_MAX:
                return

    def _build_accounts(self, slots: Iterable[str], now: float) -> set[str]:
        """Build the accounts of these slots; return those that the ledger dropped."""
        gone = set()
        for slot in slots:
            book, before = self._ledger.books.get(slot), self._accounts.pop(slot, None)
            if before is not None:
                self._members[before.job].pop(slot, None)
            if book is None:
                gone.add(slot)
                self._built_at.pop(slot, None)
                continue
            account = self._accounts[slot] = build_account(book, now)
            self._members.setdefault(account.job, {})[slot] = account
            self._built_at[slot] = now
        return gone

    def _job_view(self, job: str, now: float) -> StoreView:
        """A view of one job alone."""
        stored, times = self._stored.get(job), self._ledger.jobs.get(job)
        end = times.map_end if times is not None else None
        return StoreView(
            now=now,
            stored_jobs={} if stored is None else {job: stored},
            accounts=self._members.get(job, {}),
            states=self._messages,
            map_ends={} if end is None else {job: end},
            engine=bool(self._surroundings.get("engine", {}).get("running")),
        )

    def _build_rows(self, touched: Touched, gone: set[str], now: float) -> Changes:
        """Build the rows of what was touched, and compare."""
        slots = touched.slots | touched.messages
        jobs = touched.jobs | {name.rpartition("-")[0] for name in slots}
        changed, changed_slots, removed, removed_slots = (set[str]() for _ in range(4))
        for job in jobs:
            known = self._slot_rows.get(job, {})
            members = self._members.get(job, {})
            if job not in self._stored and not any(one.bids for one in members.values()):
                if self._job_rows.pop(job, None) is not None:
                    removed.add(job)
                removed_slots |= self._slot_rows.pop(job, {}).keys()
                continue
            view = self._job_view(job, now)
            rows = self._slot_rows[job] = overview_slot_rows(view, job, known, slots)
            self._job_rows[job] = overview_job_row(view, job)
            changed.add(job)
            changed_slots.update(name for name, row in rows.items() if known.get(name) != row)
            removed_slots |= known.keys() - rows.keys()
        nodes, removed_nodes = self._build_nodes(touched.slots | gone)
        return Changes(
            jobs=frozenset(changed),
            slots=frozenset(changed_slots),
            removed_jobs=frozenset(removed),
            removed_slots=frozenset(removed_slots),
            nodes=frozenset(nodes),
            removed_nodes=frozenset(removed_nodes - nodes),
        )

    def _build_nodes(self, slots: Iterable[str]) -> tuple[set[str], set[str]]:
        """Build the rows of the nodes of these slots; return those that differ and are gone."""
        changed, removed = set[str](), set[str]()
        for slot in slots:
            account = self._accounts.get(slot)
            rows = {} if account is None else node_rows(account)
            for name in self._nodes_of.get(slot, NONE) - rows.keys():
                for host in self._nodes.pop(name)["hosts"]:
                    self._hosts.pop(host["host"], None)
                removed.add(name)
            changed.update(name for name, row in rows.items() if self._nodes.get(name) != row)
            self._nodes.update(rows)
            self._nodes_of[slot] = frozenset(rows)
            self._hosts.update(
                {host["host"]: host for row in rows.values() for host in row["hosts"]}
            )
        return changed, removed

    def _job_json(self, job: str, rows: Mapping[str, Json]) -> Json:
        return {**self._job_rows[job], "slot_rows": list(rows.values())}

    def _node_json(self, name: str) -> Json:
        row = self._nodes[name]
        return {**row, "hosts": [self._host_json(host["host"]) for host in row["hosts"]]}

    def _host_json(self, name: str) -> Json:
        empty, sample = self._hosts[name], self._samples.get(name)
        return empty if sample is None else sampled_host_row(empty, sample)

    def _cost(self) -> Json:
        now = self._clock.now()
        if not self._midnight[0] <= now < self._midnight[1]:
            self._midnight = local_day(now)
        past = (span for spans in self._ledger.past.values() for span in spans)
        return total_cost(self._accounts.values(), past, self._midnight[0], now)


def local_day(now: float) -> tuple[float, float]:
    """When this day began on this machine, and when the next one begins."""
    today = datetime.fromtimestamp(now, UTC).astimezone().date()
    begin, end = (
        datetime.combine(day, time()).astimezone() for day in (today, today + timedelta(days=1))
    )
    return begin.timestamp(), end.timestamp()
