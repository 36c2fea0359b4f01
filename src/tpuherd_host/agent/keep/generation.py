"""Which generation an attempt continues, whether it still may publish, and which ones stay.

Hosts agree through objects that are written once: worker 0 writes what its attempt restores before
anything is restored, and all workers read it. A later attempt's object is the fence of the earlier
ones.
"""

import json
import re
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from tpuherd_host.agent.keep.kept_manifest import (
    GENERATION,
    Generation,
    is_number,
    parse_generation,
)
from tpuherd_host.agent.keep.kept_store import (
    KeepConfig,
    KeptStore,
    Stored,
    read_json,
    write_readme,
)

TICK_S, HOUR = 60, 60  #: a generation's number counts ticks since its attempt began
NOTICE, END = 10**9, 2 * 10**9  #: numbers beyond those of any tick
MANIFEST = re.compile(r"generations/(\d{9}\.\d{10})/w(\d{4,6})\.(jsonl|files)")
ATTEMPT = re.compile(r"attempts/(\d{9})\.json")


class Passed(Exception):
    """A later attempt has begun: this one publishes nothing any more."""


def attempt_name(attempt: int) -> str:
    return f"attempts/{attempt:09}.json"


class Published(NamedTuple):
    """What is in a store, by the names there."""

    workers: Dict[Generation, Set[int]]  #: which workers have a manifest
    filled: Set[Tuple[int, int]]  #: attempts and workers that kept anything

    def is_whole(self, one: Generation, workers: Iterable[int]) -> bool:
        """Whether each worker published in it, or has kept nothing at all in the attempt."""
        there = self.workers.get(one, set())
        ever = {w for other, found in self.workers.items() if other[0] == one[0] for w in found}
        idle = {worker for worker in ever if (one.attempt, worker) not in self.filled}
        return bool(there) and there | idle >= set(workers)

    def whole(self, attempt: int, workers: Iterable[int]) -> List[Generation]:
        """Return the whole generations of an attempt, the newest first."""
        workers = tuple(workers)
        ours = (one for one in self.workers if one.attempt == attempt)
        return sorted((one for one in ours if self.is_whole(one, workers)), reverse=True)


def generations_to_keep(published: Published, begun: "Attempt", tick: int) -> Set[Generation]:
    """Return what must stay after a copy of this attempt at this tick: its last two whole ones, one
    that is an hour old, what may become whole, and what the attempt began with."""
    ours = published.whole(begun.attempt, range(begun.workers))
    if not ours:
        return set(published.workers)
    old = [one for one in ours if one.number <= tick - HOUR]
    may_be = {one for one in published.workers if one > ours[0]}
    source = () if begun.source is None else (begun.source,)
    return {*ours[:2], *old[:1], *may_be, *source}


class Attempt(NamedTuple):
    """What an attempt began with, as all of its hosts read it."""

    attempt: int
    workers: int
    at: float
    source: Optional[Generation]  #: whose files it continues
    source_workers: int = 0
    restores: bool = True  #: False: each host still has its folder


def list_published(found: Iterable[Stored]) -> Published:
    workers: Dict[Generation, Set[int]] = {}
    filled = set()
    for one in found:
        match = MANIFEST.fullmatch(one.name)
        if match is None:
            continue
        generation, worker = parse_generation(match.group(1)), int(match.group(2))
        if match.group(3) == "jsonl":
            workers.setdefault(generation, set()).add(worker)
        elif one.bytes:
            filled.add((generation.attempt, worker))
    return Published(workers, filled)


def choose_source(
    published: Published,
    last: Optional[int],
    read_attempt: Callable[[int], Attempt],
    damaged: Set[Generation],
) -> Tuple[Optional[Generation], int]:
    """Return the generation to continue after this last attempt, and of how many workers it is: the
    newest whole one of that attempt, else one that this attempt could have continued."""
    limit: Optional[int] = None
    while last is not None:
        before = read_attempt(last)
        for one in published.whole(last, range(before.workers)):
            if one not in damaged and (limit is None or one.number <= limit):
                return one, before.workers
        if before.source is None or before.source.attempt >= last:
            break
        last, limit = before.source
    return None, 0


def begin_attempt(
    store: KeptStore, config: KeepConfig, now: float, pause: Callable[[], None]
) -> Attempt:
    """Return what this attempt begins with. Worker 0 decides; the others wait, and `pause` between
    two looks. OSError if the store can't be used; Passed if a later attempt has begun."""
    write_readme(store)
    name = attempt_name(config.attempt)
    if config.worker == 0 or not store.is_shared:
        numbers = set(attempt_numbers(store.list("attempts/")))
        if config.attempt not in numbers:
            last = max((one for one in numbers if one < config.attempt), default=None)
            published = list_published(store.list("generations/"))
            marks = (GENERATION.fullmatch(one.name[8:]) for one in store.list("damaged/"))
            damaged = {parse_generation(mark.group()) for mark in marks if mark}
            read = partial(read_attempt, store)
            source, workers = choose_source(published, last, read, damaged)
            begun = (config.attempt, config.workers, now, source, workers, not config.same_node)
            store.write_new(name, [format_attempt(Attempt(*begun))])  # else another one is read
    while True:
        try:
            found = read_attempt(store, config.attempt)
            break
        except FileNotFoundError:
            pause()
    raise_if_passed(store, config.attempt)
    if found.workers != config.workers:
        raise ValueError(f"attempt {config.attempt} began with {found.workers} hosts")
    return found


def format_attempt(one: Attempt) -> bytes:
    return json.dumps({"version": 1, **one._asdict()}).encode()


def parse_attempt(found: Any) -> Attempt:
    try:
        if found["version"] != 1:
            raise ValueError("a later version of herd began this attempt")
        source = found["source"]
        numbers = [found["attempt"], found["workers"], found["source_workers"], *(source or ())]
        if not all(is_number(number, 10**10) for number in numbers):
            raise ValueError("not an attempt")
        continued = None if source is None else Generation(*source)
        attempt, workers, source_workers = numbers[:3]
        at, restores = float(found["at"]), found["restores"] is True
        return Attempt(attempt, workers, at, continued, source_workers, restores)
    except (LookupError, TypeError) as error:
        raise ValueError(f"not an attempt: {error}") from None


def attempt_numbers(names: Iterable[Stored]) -> Iterator[int]:
    for one in names:
        found = ATTEMPT.fullmatch(one.name)
        if found:
            yield int(found.group(1))


def read_attempt(store: KeptStore, attempt: int) -> Attempt:
    return parse_attempt(read_json(store, attempt_name(attempt)))


def raise_if_passed(store: KeptStore, attempt: int) -> List[Stored]:
    """Raise Passed if a later attempt has begun; return what is in attempts/."""
    names = list(store.list("attempts/"))
    later = max(attempt_numbers(names), default=attempt)
    if later > attempt:
        raise Passed(f"attempt {later} has begun")
    return names
