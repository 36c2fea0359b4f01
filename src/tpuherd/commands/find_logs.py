"""Finds the kept logs that a user means, by target, host and attempt."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd.errors import Unfit
from tpuherd.jobs.job_queries import last_submitted
from tpuherd.store.database import Database
from tpuherd.store.log_store import SETUP, About, Place, Shelf
from tpuherd.targets import (
    BadTarget,
    Chosen,
    There,
    Wanted,
    choose,
    fold,
    labels,
    parse,
    ranges,
    slot_of,
)

NEVER: Mapping[str, float] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a user wants to see."""

    target: str | None
    follow: bool = False
    host: str | None = None
    attempt: str | None = None
    since: float | None = None  #: in seconds since 1970
    grep: str | None = None
    json_: bool = False
    tail: int | None = None  #: of the lines that are there
    all_: bool = False  #: also of earlier jobs of the same name


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """One piece of work on one host."""

    about: About
    place: Place
    label: str
    number: int  #: 0: it has none


def submitted_at(target: str, folder: Path, now: float) -> dict[str, float]:
    """When each job of a target was last submitted, by its name; the store is in this folder."""
    if not folder.exists():
        return {}
    store = Database(folder, now)
    try:
        found = {}
        for one in parse_target(target):
            for job in (one.name, one.name.rpartition("-")[0]):
                event = last_submitted(store, job)
                if event is not None:
                    found[job] = event[1].at
        return found
    finally:
        store.close()


def is_of_this_life(log: "Log", begun: Mapping[str, float]) -> bool:
    """Whether a log is of the job as it is now, not of an earlier one of the same name."""
    slot = slot_of(log.place.node)
    return slot is None or log.about.started >= begun.get(slot.job, 0.0)


def found(look: Look, shelf: Shelf, begun: Mapping[str, float] = NEVER) -> list[Log]:
    """The logs that are meant, the oldest first; of jobs that began then, what was since."""
    wanted = [
        log
        for log in numbered(look.target, shelf)
        if of_attempt(look.attempt, log)
        and (is_of_this_life(log, begun) or look.attempt == log.about.id)
    ]
    if look.host is None:
        return wanted
    host = look.host
    if re.fullmatch(r"w[0-9\[\],-]+", host):
        nodes = sorted({f"{log.place.zone}/{log.place.node}/{host}" for log in wanted})
        host = ",".join(nodes) or host
    meant = among(host, [log.place for log in wanted])
    return [log for log in wanted if log.place in meant]


def numbered(target: str | None, shelf: Shelf) -> list[Log]:
    """All logs of a target."""
    kept = [
        (about, among(target, about.places) if target else set(about.places))
        for about in shelf.all()
    ]
    kept = [(about, places) for about, places in kept if places]
    attempts = any(about.number for about, _ in kept)  # then numbers are theirs
    logs: list[Log] = []
    for count, (about, places) in enumerate(kept, 1):
        number = about.number or (0 if attempts or about.kind == SETUP else count)
        names = labels([(place.zone, place.node, place.worker) for place in about.places])
        logs += [
            Log(about=about, place=place, label=name, number=number)
            for place, name in zip(about.places, names, strict=True)
            if place in places
        ]
    return logs


def of_attempt(attempt: str | None, log: Log) -> bool:
    """Whether it is the one that is meant, if one is."""
    return attempt in (None, str(log.number), log.about.id)


def parse_target(target: str) -> tuple[Wanted, ...]:
    """Its names; Unfit where it is not a target."""
    try:
        return parse(target)
    except BadTarget as error:
        raise Unfit(str(error)) from error


def chosen_from(target: str, places: Iterable[Place]) -> Chosen:
    """What a target means among these hosts."""
    wished = parse_target(target)
    many: dict[tuple[str, str], int] = {}
    for place in places:
        key = (place.zone, place.node)
        many[key] = max(many.get(key, 0), place.worker + 1)
    there = [There(name=node, zone=zone, workers=count) for (zone, node), count in many.items()]
    return choose(wished, there)


def among(target: str, places: Iterable[Place]) -> set[Place]:
    """Which of these hosts a target means."""
    places = list(places)
    workers = chosen_from(target, places).workers
    meant = {(node.zone, node.name, worker) for node, worker in workers}
    return {place for place in places if (place.zone, place.node, place.worker) in meant}


def nothing(look: Look, shelf: Shelf) -> str:
    """The sentence where there is no log."""
    logs = numbered(look.target, shelf)
    if look.target and not logs:
        places = {place for about in shelf.all() for place in about.places}
        if not places:
            return f"there is no log of {look.target}, nor of anything else"
        missing = chosen_from(look.target, places).missing
        return re.sub(r"^there is no ", "there is no log of ", missing[0])
    left = [log for log in logs if of_attempt(look.attempt, log)]
    if left and look.host is None:
        return f"{look.target} has no log yet; --all shows those of earlier jobs of this name"
    if left:
        return f"there is no log of {look.host}: there is {fold(log.label for log in left)}"
    numbers = ranges({str(log.number) for log in logs if log.number and look.target})
    whose = f" of {look.target}: there is {numbers}" if numbers else ""
    return f"there is no log {look.attempt}{whose}"
