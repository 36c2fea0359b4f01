"""Reads the kept logs and prints their lines, in order of time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from tpuherd import meant
from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.cli.screen import COLOURS, PORTS
from tpuherd.cli.words import clock
from tpuherd.clock import WallClock
from tpuherd.core.gather import Plain, as_json, cut
from tpuherd.core.targets import (
    BadTarget,
    Chosen,
    There,
    choose,
    fold,
    labels,
    parse,
    ranges,
)
from tpuherd.ports import NotFound, Unfit
from tpuherd.store.logs import SETUP, About, Place, Shelf
from tpuherd_host.agent.records import GAP, JUMP

LOOK_S = 0.3
ANCHORS = re.compile(rb"\\[AZ]|\(\?")  #: what means something else in a text of many lines
MISSING = b"[output is missing here]\n"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """One piece of work on one host."""

    about: About
    place: Place
    label: str
    number: int  #: 0: it has none


class Piece(NamedTuple):
    """Whole lines of one of them, said at the same time. They sort as they stand here."""

    at: float
    log: int  #: which, by its place among all
    port: int
    text: bytes


async def show(look: Look, console: Console, home: Home) -> int:
    """From the target to the last line."""
    del home  # nobody is asked: all of it is here
    shelf = Shelf(shelf_folder(console))
    wall = WallClock()
    pattern = compiled(look.grep)
    chosen = found(look, shelf)
    page = Page(shelf, console, json_=look.json_, since=look.since or 0.0, pattern=pattern)
    if not chosen:
        sentence = nothing(look, shelf)
        if not look.follow:
            raise NotFound(sentence, hint="what says nothing leaves no log")
        await console.tell(f"herd logs: {sentence}; waiting for one")
    await page.put(chosen)
    while look.follow:
        await console.flush()
        await wall.sleep(LOOK_S)
        await page.put(found(look, shelf))
    return 0


def shelf_folder(console: Console) -> Path:
    """Where the logs of the place are that is meant; the place itself may be gone."""
    return meant.scope(console.environ, world=console.said.world).logs


def compiled(text: str | None) -> re.Pattern[bytes] | None:
    """What --grep looks for."""
    try:
        return None if text is None else re.compile(text.encode(), re.MULTILINE)
    except re.error as error:
        raise Unfit(f"{text!r} is no regular expression: {error}") from error


def found(look: Look, shelf: Shelf) -> list[Log]:
    """The logs that are meant, the oldest first."""
    wanted = [log for log in numbered(look.target, shelf) if of_attempt(look.attempt, log)]
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


def chosen_from(target: str, places: Iterable[Place]) -> Chosen:
    """What a target means among these hosts."""
    try:
        wished = parse(target)
    except BadTarget as error:
        raise Unfit(str(error)) from error
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
    if left:
        return f"there is no log of {look.host}: there is {fold(log.label for log in left)}"
    numbers = ranges({str(log.number) for log in logs if log.number and look.target})
    whose = f" of {look.target}: there is {numbers}" if numbers else ""
    return f"there is no log {look.attempt}{whose}"


class Page:
    """Prints what has not been printed yet."""

    def __init__(
        self,
        shelf: Shelf,
        console: Console,
        *,
        json_: bool,
        since: float,
        pattern: re.Pattern[bytes] | None,
    ) -> None:
        self._shelf = shelf
        self._console = console
        self._json = json_
        self._since = since
        self._search = None if pattern is None else pattern.search
        #: A text in which it is not found has no line in which it is.
        self._quick = pattern is not None and not ANCHORS.search(pattern.pattern)
        self._offsets: dict[tuple[str, Place], int] = {}
        self._lines: dict[tuple[str, Place], Plain] = {}
        self._heads: dict[str, list[str]] = {}  #: by host the work it has spoken of, in turn
        self._headed: set[str] = set()

    async def put(self, logs: Sequence[Log]) -> None:
        """All lines of these that are new, by their time."""
        streams = [self._new(log, at) for at, log in enumerate(logs)]
        for piece in merge(*streams):
            await self._console.say(self._shown(logs[piece.log], piece))

    def _new(self, log: Log, number: int) -> Iterator[Piece]:
        """The lines of one log that were not printed yet."""
        key = (log.about.id, log.place)
        plain = self._lines.setdefault(key, Plain())
        start = self._offsets.get(key, 0)
        for offset, record in self._shelf.records(log.about.id, log.place, start):
            self._offsets[key] = offset
            if record.at < self._since:
                continue
            said = MISSING if record.port in (GAP, JUMP) else record.piece
            for block in plain.feed("", record.port, said, record.at):
                if text := self._fitting(block.text):
                    yield Piece(record.at, number, record.port, text)
        if log.about.ended is not None:
            for block in plain.end("", log.about.ended):
                if text := self._fitting(block.text):
                    yield Piece(log.about.ended, number, block.port, text)

    def _fitting(self, text: bytes) -> bytes:
        """The lines that are looked for."""
        search = self._search
        if search is None:
            return text
        if self._quick and not search(text):
            return b""
        return b"".join(line for line in cut(text) if search(line.removesuffix(b"\n")))

    def _shown(self, log: Log, piece: Piece) -> bytes:
        lines = piece.text.removesuffix(b"\n")
        if self._json:
            port = PORTS.get(piece.port, "agent")
            rows = (as_json(log.label, port, line, piece.at) for line in lines.split(b"\n"))
            return b"".join(rows)
        before, name = self._head(log), f"{log.label}:"
        if self._console.coloured(1):
            before = f"\x1b[2m{before}\x1b[0m" if before else ""
            name = f"\x1b[{COLOURS[log.place.worker % len(COLOURS)]}m{name}\x1b[0m"
        before = f"{before}\n" if before else ""
        prefix = f"{clock(piece.at)} {name} ".encode()
        return before.encode() + prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n"

    def _head(self, log: Log) -> str:
        """What the lines are of: where it begins, and where a host comes back to it."""
        about = log.about
        spoken = self._heads.setdefault(log.label, [])
        back = about.id in spoken[:-1]
        if about.id in spoken:
            spoken.remove(about.id)
        spoken.append(about.id)
        if about.id in self._headed and not back:
            return ""
        self._headed.add(about.id)
        return f"-- {log.number or '-'}  {about.id}  {clock(about.started)}  {about.title}"
