"""The logs of what ran on hosts, kept here: they can be read when the host is long gone.

    <folder>/<work>/about.json                 what it is, where and since when it runs
    <folder>/<work>/<zone>.<node>.<worker>.<incarnation>/<offset>.log   records as agents write them

A node of the same name that was created anew is another one, and so is its log: also where a store
was lost and names are given out again. An incarnation is told by the first letters of its hash.

A segment's name is the logical offset of its first byte, so that a reader and a writer who come
later go on where the others stopped. Only one writes a host's log at a time, held by a lock.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tpuherd_host.agent.records import Record, Records, packed, whole

SEGMENT_MAX = 16 << 20
BUFFER_MAX = 1 << 16
KEEP_S = 14 * 86400.0  #: commands; of attempts the engine says when they may go
READ_MAX = 1 << 20
COMMAND, SETUP = "command", "setup"
#: Attempts, and the setups of nodes.
OF_JOB = re.compile(r"(?P<job>.+)-[0-9]+-(a[0-9]+-[a-z0-9]+|g[0-9]+-[a-z0-9]+-setup-.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A host that something ran on, as created once."""

    zone: str
    node: str
    worker: int
    incarnation: str

    @property
    def folder(self) -> str:
        """Its name within the folder of a piece of work."""
        incarnation = sha256(self.incarnation.encode()).hexdigest()[:8]
        return f"{self.zone}.{self.node}.{self.worker}.{incarnation}"


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What ran, where, since when, and how it ended."""

    id: str
    kind: str  #: command, attempt or setup
    title: str
    target: str  #: as the user said it
    started: float
    places: tuple[Place, ...]
    number: int = 0  #: of an attempt, from 1
    ended: float | None = None
    status: int | None = None


def folder(state: Path, *, world: Path | None, project: str) -> Path:
    """Where the logs of a place are: also known where it can't be reached."""
    if world is None:
        return state / "logs" / f"project-{project}"
    name = sha256(os.fsencode(world.absolute())).hexdigest()[:12]
    return state / "logs" / f"world-{name}"


class Shelf:
    """The logs of one place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, about: About) -> None:
        """Write down what it is; again when it has ended."""
        home = self.folder / about.id
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = home / "about.new"
        draft.write_text(json.dumps(asdict(about)))
        draft.replace(home / "about.json")

    def all(self) -> list[About]:
        """Everything that is kept, the oldest first."""
        found = []
        for file in self.folder.glob("*/about.json"):
            try:
                found.append(about(json.loads(file.read_bytes())))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # of another version, or just being removed
        return sorted(found, key=lambda one: one.started)

    def of(self, id: str) -> About | None:
        """The one of this id."""
        try:
            return about(json.loads((self.folder / id / "about.json").read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def prune(self, now: float) -> None:
        """Forget commands of long ago."""
        for one in self.all():
            if one.kind == COMMAND and max(one.started, one.ended or 0) < now - KEEP_S:
                shutil.rmtree(self.folder / one.id, ignore_errors=True)

    def forget(self, jobs: Collection[str]) -> None:
        """Remove what attempts and setups of these jobs said."""
        for home in self.folder.glob("*-[ag][0-9]*-*") if jobs else ():
            named = OF_JOB.fullmatch(home.name)
            if named is not None and named["job"] in jobs:
                shutil.rmtree(home, ignore_errors=True)

    def writer(self, id: str, place: Place) -> "Writer":
        """Who writes the log of a host; silent if another does so already."""
        return Writer(self.folder / id / place.folder)

    def end(self, id: str, place: Place) -> int:
        """The logical offset up to which the log is here."""
        return end(self.folder / id / place.folder)

    def records(self, id: str, place: Place, start: int = 0) -> Iterator[tuple[int, Record]]:
        """What is here from this offset on, each with the offset behind it."""
        for offset, path in segments(self.folder / id / place.folder):
            try:
                if offset + path.stat().st_size <= start:
                    continue
                stream = path.open("rb")
            except FileNotFoundError:
                continue
            with stream:
                reader = Records(offset)
                while piece := stream.read(READ_MAX):
                    for record in reader.feed(piece):
                        if reader.offset > start:
                            yield reader.offset, record


class Writer:
    """Appends to the log of one host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = -1
        self._file = -1
        self._size = 0
        self._pending: list[bytes] = []
        self._waiting = 0  #: bytes of them
        self.offset = 0  #: behind what is written
        self.silent = False  #: another one writes it, or it can't be written
        self.lost = False  #: it can't be written

    def put(self, offset: int, record: Record) -> None:
        """A record that begins at this offset; what is here already is not written again."""
        if self._lock < 0 and not self.silent:
            self._open()
        if self.silent or offset < self.offset:
            return
        if offset > self.offset or self._size >= SEGMENT_MAX:
            self.flush()
            self._begin(offset)
        if self.silent:
            return
        piece = packed(record.at, record.port, record.piece)
        self._pending.append(piece)
        self._waiting += len(piece)
        self._size += len(piece)
        self.offset = offset + len(piece)
        if self._waiting >= BUFFER_MAX:
            self.flush()

    def flush(self) -> None:
        """To the disk's care. Where it is full the log stays as it is; the host has it all."""
        rest = memoryview(b"".join(self._pending))
        self._pending.clear()
        self._waiting = 0
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """No more comes."""
        if self._pending:
            self.flush()
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    def _open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = self._folder / "lock"
            self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.offset = end(self._folder)
            self._size = SEGMENT_MAX  # begin a segment of our own
        except OSError as error:
            self._give_up(error)

    def _begin(self, offset: int) -> None:
        """Another segment; none behind what had no room, which nobody would ask for again."""
        if self.silent:
            return
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        segment = self._folder / f"{offset:020d}.log"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.open(segment, flags, 0o600)
        except OSError as error:
            self._give_up(error)
        self._size = 0
        self.offset = offset

    def _give_up(self, error: OSError) -> None:
        """It can't be written here."""
        self.lost = not isinstance(error, BlockingIOError)
        self.close()
        self.silent = True


def segments(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a log with their offsets, in order."""
    return sorted((int(path.stem), path) for path in folder.glob("*.log"))


def end(folder: Path) -> int:
    """The offset behind the last whole record."""
    for offset, path in reversed(segments(folder)):
        length = whole(path.read_bytes())
        if length or not offset:
            return offset + length
    return 0


def about(content: Mapping[str, Any]) -> About:
    """From JSON."""
    places = tuple(Place(**place) for place in content["places"])
    return replace(About(**{**content, "places": ()}), places=places)
