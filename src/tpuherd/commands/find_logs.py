"""Finds stored logs by target, host and attempt."""

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache

from tpuherd.accounting.slot_account import has_ended
from tpuherd.clock import WallClock
from tpuherd.errors import InvalidInput
from tpuherd.jobs.job_queries import last_submission
from tpuherd.jobs.ledger_cache import load_ledger, read_new_events
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.engine_rest import STARTED
from tpuherd.store.log_store import COMMAND, SETUP, LogHost, LogInfo, LogStore
from tpuherd.store.open_database import open_database
from tpuherd.targets import (
    BadTarget,
    ChosenWorkers,
    KnownNode,
    TargetName,
    choose_workers,
    fold_names,
    format_ranges,
    parse_target_names,
    split_bid_name,
    worker_labels,
)

STARTS_MAX = 1_000  #: of engines that are looked through
NEVER: Mapping[str, float] = {}
FIND_S, REST_S = 2.0, 60.0  #: how often new logs are looked for, and the end of those that are over


@dataclass(frozen=True, kw_only=True, slots=True)
class LogQuery:
    target: str | None
    follow: bool = False
    host: str | None = None
    attempt: str | None = None
    since: float | None = None  #: in seconds since 1970
    grep: str | None = None
    json_: bool = False
    tail: int | None = None  #: of the existing lines
    all_: bool = False  #: also of earlier jobs of the same name


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLog:
    """The log of one attempt or command on one host."""

    about: LogInfo
    place: LogHost
    label: str
    number: int  #: 0: none


def submission_times(target: str, place: ProjectScope, now: float) -> dict[str, float]:
    """Return when each job of a target was last submitted."""
    if not place.has_store:
        return {}
    store = open_database(place, now)
    try:
        found = {}
        for one in parse_log_target(target):
            for job in (one.name, one.name.rpartition("-")[0]):
                event = last_submission(store, job)
                if event is not None:
                    found[job] = event[1].at
        return found
    finally:
        store.close()


def engine_accounts(place: ProjectScope) -> list[str]:
    """Return the accounts whose engines have led, the latest last."""
    with closing(open_database(place, WallClock().now())) as store:
        started = store.read_events(kinds=(STARTED,), limit=STARTS_MAX, newest=True)
        return list(
            dict.fromkeys(str(one.facts["who"]) for _, one in started if "who" in one.facts)
        )


def is_of_current_job(log: "HostLog", begun: Mapping[str, float]) -> bool:
    """Whether a log is of the current job, not of an earlier one of the same name."""
    slot = split_bid_name(log.place.bid or log.place.node)
    return slot is None or log.about.started >= begun.get(slot.job, 0.0)


def find_logs(look: LogQuery, shelf: LogStore, begun: Mapping[str, float] = NEVER) -> list[HostLog]:
    """Return the matching logs, oldest first; of a job in `begun` only those since then."""
    wanted = [
        log
        for log in number_logs(look.target, shelf)
        if is_of_attempt(look.attempt, log)
        and (is_of_current_job(log, begun) or look.attempt == log.about.id)
    ]
    if look.host is None:
        return wanted
    host = look.host
    if re.fullmatch(r"w[0-9\[\],-]+", host):
        nodes = sorted({f"{log.place.zone}/{log.place.node}/{host}" for log in wanted})
        host = ",".join(nodes) or host
    meant = match_places(host, [log.place for log in wanted])
    return [log for log in wanted if log.place in meant]


class LogFollower:
    """Finds the logs of a query again and again: of those of one host all but the latest two are
    over, and looked at rarely.
    """

    def __init__(self, look: LogQuery, shelf: LogStore, begun: Mapping[str, float] = NEVER) -> None:
        self._query = look, shelf, begun
        self._infos: list[LogInfo] = []
        self._logs: list[HostLog] = []
        self._latest: list[HostLog] = []
        self._found_at = self._read_at = -FIND_S

    def find_growing(self, now: float) -> list[HostLog]:
        """Return the logs that may have new output."""
        look, shelf, begun = self._query
        if now >= self._found_at + FIND_S:
            self._found_at, before, self._infos = now, self._infos, shelf.list_logs()
            if self._infos != before or not self._logs:
                self._logs = find_logs(look, shelf, begun)
                self._latest = latest_logs(self._logs)
                return self._latest
        if now < self._read_at + REST_S:
            return self._latest
        self._read_at = now
        return self._logs

    def all_logs(self) -> list[HostLog]:
        return find_logs(*self._query)

    def has_ended(self) -> bool:
        """Whether these are commands alone, and all of them have ended."""
        return bool(self._logs) and all(log.about.ended is not None for log in self._logs)


def latest_logs(logs: Iterable[HostLog]) -> list[HostLog]:
    """Return commands that run, and of each host of a slot the latest two logs; oldest first."""
    kept, many = list[HostLog](), dict[tuple[str, int], int]()
    for log in sorted(logs, key=lambda one: one.about.started, reverse=True):
        named = split_bid_name(log.place.bid or log.place.node)
        key = (named.slot if named is not None else log.place.node, log.place.worker)
        many[key] = many.get(key, 0) + (log.about.kind != COMMAND)
        if log.about.ended is None and (log.about.kind == COMMAND or many[key] <= 2):
            kept.append(log)
    return kept[::-1]


class JobEnds:
    """Says whether the jobs of a target have ended, from what is new in the store."""

    def __init__(self, target: str, place: ProjectScope) -> None:
        self._store = open_database(place, WallClock().now())
        self._ledger, self._version = load_ledger(self._store), -1
        self._jobs = [self._job_of(one.name) for one in parse_log_target(target)]
        self._over = False

    def are_over(self) -> bool:
        """Whether nothing of them runs, and nothing will by itself; False for what is no job."""
        if (version := self._store.change_counter()) != self._version:
            self._version = version
            read_new_events(self._ledger, self._store)
            stored = self._store.stored_jobs()
            self._over = all(self._is_over(job, stored.get(job)) for job in self._jobs)
        return self._over

    def _job_of(self, name: str) -> str:
        """The job of a job, slot or node."""
        bid = split_bid_name(name)
        heads = (name, name.rpartition("-")[0], bid.job if bid is not None else "")
        return next((head for head in heads if head in self._ledger.jobs), "")

    def _is_over(self, job: str, stored: StoredJob | None) -> bool:
        times = self._ledger.jobs.get(job)
        if times is None or times.map_end is not None:
            return times is not None
        books = [book for book in self._ledger.books.values() if book.job == job]
        wanted = () if stored is None or stored.goal is Goal.GONE else stored.slot_names
        return {*wanted} <= {book.slot for book in books} and all(map(has_ended, books))

    def close(self) -> None:
        self._store.close()


@lru_cache(4096)
def match_places_once(target: str, places: tuple[LogHost, ...]) -> frozenset[LogHost]:
    """Like match_places; many logs are of the same hosts."""
    return frozenset(match_places(target, places))


def number_logs(target: str | None, shelf: LogStore) -> list[HostLog]:
    kept = [
        (about, match_places_once(target, about.places) if target else set(about.places))
        for about in shelf.list_logs()
    ]
    kept = [(about, places) for about, places in kept if places]
    attempts = any(about.number for about, _ in kept)  # then only attempts have numbers
    logs: list[HostLog] = []
    for count, (about, places) in enumerate(kept, 1):
        number = about.number or (0 if attempts or about.kind == SETUP else count)
        names = worker_labels([(place.zone, place.node, place.worker) for place in about.places])
        logs += [
            HostLog(about=about, place=place, label=name, number=number)
            for place, name in zip(about.places, names, strict=True)
            if place in places
        ]
    return logs


def is_of_attempt(attempt: str | None, log: HostLog) -> bool:
    """Whether a log matches --attempt, or there is none."""
    return attempt in (None, str(log.number), log.about.id)


def parse_log_target(target: str) -> tuple[TargetName, ...]:
    """Parse a target; raise InvalidInput if it is none."""
    try:
        return parse_target_names(target)
    except BadTarget as error:
        raise InvalidInput(str(error)) from error


def choose_hosts(target: str, places: Iterable[LogHost]) -> ChosenWorkers:
    """Resolve a target among these hosts."""
    wanted = parse_log_target(target)
    many: dict[tuple[str, str, str], int] = {}
    for place in places:
        bid = place.bid if split_bid_name(place.node) is None else ""
        key = (place.zone, place.node, bid)
        many[key] = max(many.get(key, 0), place.worker + 1)
    there = [
        KnownNode(name=node, zone=zone, workers=count, bid=bid)
        for (zone, node, bid), count in many.items()
    ]
    return choose_workers(wanted, there)


def match_places(target: str, places: Iterable[LogHost]) -> set[LogHost]:
    """Return which of these hosts match a target."""
    places = list(places)
    workers = choose_hosts(target, places).workers
    meant = {(node.zone, node.name, worker) for node, worker in workers}
    return {place for place in places if (place.zone, place.node, place.worker) in meant}


def no_logs_sentence(look: LogQuery, shelf: LogStore) -> str:
    """Return why there is no log."""
    logs = number_logs(look.target, shelf)
    if look.target and not logs:
        places = {place for about in shelf.list_logs() for place in about.places}
        if not places:
            return f"there is no log of {look.target}, and no other log either"
        missing = choose_hosts(look.target, places).missing
        return re.sub(r"^there is no ", "there is no log of ", missing[0])
    left = [log for log in logs if is_of_attempt(look.attempt, log)]
    if left and look.host is None:
        return f"{look.target} has no log yet; --all shows those of earlier jobs of this name"
    if left:
        return f"there is no log of {look.host}, only of {fold_names(log.label for log in left)}"
    numbers = format_ranges({str(log.number) for log in logs if log.number and look.target})
    whose = f" of {look.target}, only {numbers}" if numbers else ""
    return f"there is no log {look.attempt}{whose}"
