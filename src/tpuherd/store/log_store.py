"""The logs of what ran on hosts, stored here so that they outlive the hosts.

    <folder>/<work>/about.json                 what it is, where it runs and since when
    <folder>/<work>/<zone>.<node>.<worker>.<incarnation>/<offset>.log   records as agents write them

A recreated node of the same name gets a log of its own, also if a store was lost and names are
reused; the first letters of the incarnation's hash distinguish them.

A segment's name is the logical offset of its first byte, so that later readers and writers continue
where earlier ones stopped. A lock lets only one process write a host's log at a time.

The size is bounded, as programs on hosts decide how much they print. We keep the last 256 MiB per
log and host (as much as an agent keeps of a command, and more than a training run prints in a
week), 4 GiB for all hosts of an attempt, and 8 GiB for all attempts of a job, so that a laptop has
room for several jobs. No log takes the last of a disk, which the store and other programs need. The
oldest part goes first, because the end of a log says why it failed. Logs of attempts that ended 90
days ago go, too, but each slot keeps that of its latest attempt.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tpuherd.errors import OperationFailed
from tpuherd.files import atomic_write, check_free_disk, make_private_folder
from tpuherd.ports import Host
from tpuherd_host.agent.log_records import (
    GAP,
    JUMP,
    NUMBER,
    BadRecord,
    Record,
    RecordReader,
    complete_length,
    pack_record,
)

SEGMENT_MAX = 16 << 20
HOST_BYTES_MAX, HOST_BYTES_MIN = 256 << 20, 8 << 20  #: per log and host
LOG_BYTES_MAX = 4 << 30  #: per log on all its hosts; each host may have HOST_BYTES_MIN all the same
JOB_LOGS_MAX = 4_000  #: attempts and setups of a job that have logs here
JOB_BYTES_MAX = 8 << 30  #: for the attempts and setups of a job, without its newest
SEGMENTS = 4  #: a bounded log is split into at least this many segments
SEGMENTS_MAX = 4096  #: every writer that reopens a log starts a new segment
DROPPED = "dropped"  #: a file that says that the oldest segments were removed
BUFFER_MAX = 1 << 16
KEEP_S = 14 * 86400.0  #: for commands
ATTEMPTS_KEEP_S = 90 * 86400.0  #: for attempts and setups of jobs that still exist
PRUNED_MAX = 200  #: logs that are removed at a time
READ_MAX = 1 << 20
MISSING = b"[output is missing here]\n"
COMMAND, SETUP = "command", "setup"
#: Folders of attempts and of node setups.
OF_JOB = re.compile(r"(?P<job>.+)-[0-9]+-(a[0-9]+-[a-z0-9]+|g[0-9]+-[a-z0-9]+-setup-.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogHost:
    """One incarnation of a host that something ran on."""

    zone: str
    node: str
    worker: int
    incarnation: str
    bid: str = ""  #: of its node, if it is herd's

    @property
    def folder_name(self) -> str:
        """The name of its folder within a log's folder."""
        check_folder_name(self.zone)
        check_folder_name(self.node)
        incarnation = sha256(self.incarnation.encode()).hexdigest()[:8]
        return f"{self.zone}.{self.node}.{self.worker}.{incarnation}"


def log_host(host: Host) -> LogHost:
    return LogHost(
        zone=host.zone,
        node=host.node,
        worker=host.worker,
        incarnation=host.incarnation,
        bid=host.bid,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LogInfo:
    """What ran, where, since when, and how it ended."""

    id: str
    kind: str  #: command, attempt or setup
    title: str
    target: str  #: as the user wrote it
    started: float
    places: tuple[LogHost, ...]
    number: int = 0  #: of an attempt, from 1
    ended: float | None = None
    status: int | None = None


#: Valid names of logs, zones and nodes, which become folder names.
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def check_folder_name(name: str) -> str:
    """The name if it is safe as a folder name; OperationFailed for one like ../x."""
    if FOLDER_NAME.fullmatch(name) is None:
        raise OperationFailed(f"{name[:80]!r} is not a valid name for a log")
    return name


class LogStore:
    """All logs of a project or world."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places = ("", 1)  #: the log for which a writer was opened last, and its hosts
        self._described = ("", frozenset[LogHost]())  #: the log described last, and its hosts
        self._known: dict[str, tuple[int, LogInfo]] = {}  #: by id, with the time of its last change

    def write_info(self, about: LogInfo) -> None:
        """Save what it is; call again when it has ended."""
        home = self._log_folder(about.id)
        make_private_folder(home)
        atomic_write(home / "about.json", json.dumps(asdict(about)))

    def describe_log(self, about: LogInfo) -> None:
        """Save what it is, or add these hosts to what is saved."""
        id, known = self._described  # the hosts of a large node follow each other
        if id == about.id and known.issuperset(about.places):
            return
        saved = self.find_log(about.id) or replace(about, places=())
        known = frozenset(saved.places)
        if new := tuple(one for one in about.places if one not in known):
            self.write_info(replace(saved, places=(*saved.places, *new)))
        self._described = (about.id, known.union(new))

    def list_logs(self) -> list[LogInfo]:
        """All logs, the oldest first; only what has changed since the last call is read."""
        known, self._known = self._known, {}
        for home in self.folder.iterdir() if self.folder.is_dir() else ():
            file = home / "about.json"
            try:
                changed = file.stat().st_mtime_ns
                before = known.get(home.name)
                if before is None or before[0] != changed:
                    before = changed, parse_log_info(json.loads(file.read_bytes()))
                self._known[home.name] = before
            except (OSError, ValueError, KeyError, TypeError):
                continue  # from another version, or being removed right now
        return sorted((about for _, about in self._known.values()), key=lambda one: one.started)

    def find_log(self, id: str) -> LogInfo | None:
        """The log of this id; None if there is no such log."""
        try:
            return parse_log_info(json.loads((self._log_folder(id) / "about.json").read_bytes()))
        except (OperationFailed, OSError, ValueError, KeyError, TypeError):
            return None

    def prune_commands(self, now: float) -> None:
        """Remove the logs of commands older than KEEP_S."""
        for one in self.list_logs():
            if one.kind == COMMAND and max(one.started, one.ended or 0) < now - KEEP_S:
                shutil.rmtree(self.folder / one.id, ignore_errors=True)

    def remove_jobs(self, jobs: Collection[str]) -> None:
        """Remove the logs of attempts and setups of these jobs."""
        for home in self.folder.glob("*-[ag][0-9]*-*") if jobs else ():
            named = OF_JOB.fullmatch(home.name)
            if named is not None and named["job"] in jobs:
                shutil.rmtree(home, ignore_errors=True)

    def prune_attempts(self, before: float, keep: Collection[str]) -> int:
        """Remove the logs of attempts and setups that ended before then, but not these; a few at a
        time. Returns how many.
        """
        removed = 0
        for home in self.folder.glob("*-[ag][0-9]*-*"):
            if home.name in keep or OF_JOB.fullmatch(home.name) is None:
                continue
            try:
                ended = max(one.stat().st_mtime for one in (home, home / "about.json"))
                if ended >= before or any(
                    one.stat().st_mtime >= before for one in home.glob("*/*.log")
                ):
                    continue
            except OSError:
                continue  # not described yet, or being removed right now
            shutil.rmtree(home, ignore_errors=True)
            removed += 1
            if removed == PRUNED_MAX:
                break
        return removed

    def open_writer(self, id: str, place: LogHost) -> "LogWriter":
        """A writer for a host's log; it is silent if another process already writes it."""
        if self._places[0] != id:  # the hosts of a large node follow each other
            known = self.find_log(id)
            self._places = (id, len(known.places)) if known is not None else ("", 1)
        most = max(HOST_BYTES_MIN, min(HOST_BYTES_MAX, LOG_BYTES_MAX // max(self._places[1], 1)))
        return LogWriter(self._log_folder(id) / place.folder_name, most)

    def end_offset(self, id: str, place: LogHost) -> int:
        """The logical offset of the end of the stored log."""
        return find_end_offset(self._log_folder(id) / place.folder_name)

    def segment_offsets(self, id: str, place: LogHost) -> list[int]:
        """Where its segments begin, each at a record."""
        folder = self._log_folder(id) / place.folder_name
        return [offset for offset, _ in list_segments(folder)]

    def _log_folder(self, id: str) -> Path:
        """The folder of a log, checked to be within ours."""
        return self.folder / check_folder_name(id)

    def host_folder(self, id: str, place: LogHost) -> Path:
        return self._log_folder(id) / place.folder_name

    def read_records(
        self, id: str, place: LogHost, start: int = 0, *, known: int = 0
    ) -> Iterator[tuple[int, Record]]:
        """The records from this offset on, each with the offset of its end. If the oldest were
        removed, a JUMP to the first remaining one comes first.

        `known`: an offset at which a record ends; what is before it is not read.
        """
        home = self.host_folder(id, place)
        dropped = (home / DROPPED).exists()
        for offset, path in list_segments(home):
            for end, record in read_segment(offset, path, start, known):
                if dropped and offset > start:
                    yield offset, Record(record.at, JUMP, NUMBER.pack(offset))
                dropped = False
                yield end, record

    def trim_job(self, job: str, newest: str) -> list[str]:
        """Remove the oldest attempts and setups of a job with too large logs; returns their ids."""
        found: list[tuple[float, int, Path]] = []
        for home in self.folder.glob(f"{job}-[0-9]*-[ag][0-9]*-*"):
            named = OF_JOB.fullmatch(home.name)
            if named is not None and named["job"] == job and home.name != newest:
                files = [path.stat() for path in home.glob("*/*.log")]
                at = max((one.st_mtime for one in files), default=0.0)
                found.append((at, sum(one.st_size for one in files), home))
        found.sort()
        total, removed = sum(size for _, size, _ in found), list[str]()
        for _, size, home in found:
            if total <= JOB_BYTES_MAX and len(found) - len(removed) <= JOB_LOGS_MAX:
                break
            shutil.rmtree(home, ignore_errors=True)
            removed.append(home.name)
            total -= size
        return removed


class LogCursor:
    """Reads what is new in logs since its last call; a line stands for lost output."""

    def __init__(self, store: LogStore, since: float = 0.0) -> None:
        self._store = store
        self._since = since
        self._offsets: dict[tuple[str, LogHost], int] = {}
        self._marks: dict[tuple[str, LogHost], tuple[Path, Path, tuple[int, int]]] = {}

    def _has_grown(self, id: str, place: LogHost) -> bool:
        """Whether its files may differ from those of the last call: cheaper than reading them."""
        key, known = (id, place), self._marks.get((id, place))
        with suppress(OSError):
            if known is not None and file_mark(*known[:2]) == known[2]:
                return False
            folder = self._store.host_folder(id, place)
            if segments := list_segments(folder):
                last = segments[-1][1]
                self._marks[key] = folder, last, file_mark(folder, last)
        return True

    def read_new(self, id: str, place: LogHost) -> Iterator[tuple[float, int, bytes]]:
        """The time, port and text of each new record that is not older than `since`."""
        if not self._has_grown(id, place):
            return
        start = self._offsets.get((id, place), 0)
        for offset, record in self._store.read_records(id, place, start, known=start):
            self._offsets[id, place] = offset
            if record.at >= self._since:
                lost = record.port in (GAP, JUMP)
                yield record.at, record.port, MISSING if lost else record.piece


class LogWriter:
    """Appends to the log of one host."""

    def __init__(self, folder: Path, most: int = HOST_BYTES_MAX) -> None:
        self._folder = folder
        self.most = most  #: bytes to keep
        self._segment_max = min(SEGMENT_MAX, most // SEGMENTS)
        self._lock = -1
        self._file = -1
        self._size = 0
        self._pending: list[bytes] = []
        self._waiting = 0  #: bytes in `_pending`
        self.offset = 0  #: of the end of what was written
        self.silent = False  #: another process writes it, or writing failed
        self.lost = False  #: writing failed
        self.dropped = False  #: this writer removed the oldest segments

    def put(self, offset: int, record: Record) -> None:
        """Append a record that begins at this offset; ignored if it is already stored."""
        if self._lock < 0 and not self.silent:
            self._open_folder()
        if self.silent or offset < self.offset:
            return
        if offset > self.offset or self._size >= self._segment_max:
            self.flush()
            self._begin_segment(offset)
        if self.silent:
            return
        piece = pack_record(record.at, record.port, record.piece)
        self._pending.append(piece)
        self._waiting += len(piece)
        self._size += len(piece)
        self.offset = offset + len(piece)
        if self._waiting >= BUFFER_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what is pending. On a full disk the log stops here; the host has all of it."""
        if not self._pending:
            return
        rest = memoryview(b"".join(self._pending))
        self._pending.clear()
        self._waiting = 0
        try:
            check_free_disk(self._folder)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Flush, and release the files and the lock."""
        self.flush()
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    def _open_folder(self) -> None:
        try:
            make_private_folder(self._folder)
            lock = self._folder / "lock"
            self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.offset = find_end_offset(self._folder)
            self._size = self._segment_max  # start a segment of our own
        except OSError as error:
            self._give_up(error)

    def _begin_segment(self, offset: int) -> None:
        """Start a new segment, unless a write failed: a gap would never be filled."""
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
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Remove the oldest segments until a new one fits within the bound."""
        kept = list_segments(self._folder)
        try:
            sizes = [path.stat().st_size for _, path in kept]
            room = self.most - self._segment_max
            while len(kept) > 1 and (sum(sizes) > room or len(kept) > SEGMENTS_MAX):
                (self._folder / DROPPED).touch()
                kept.pop(0)[1].unlink()
                sizes.pop(0)
                self.dropped = True
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Stop writing: another process holds the lock, or the disk failed."""
        self.lost = not isinstance(error, BlockingIOError)
        self.close()
        self.silent = True


def file_mark(folder: Path, last: Path) -> tuple[int, int]:
    """What changes when a log grows: a segment is added, or the last one gets longer."""
    return folder.stat().st_mtime_ns, last.stat().st_size


def list_segments(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a log with their offsets, in order."""
    return sorted((int(path.stem), path) for path in folder.glob("*.log"))


def read_segment(
    offset: int, path: Path, start: int, known: int = 0
) -> Iterator[tuple[int, Record]]:
    """The records of a segment after an offset, up to the first malformed one.

    `known`: where a record ends, so that what is before need not be read.
    """
    try:
        if offset + path.stat().st_size <= start:
            return
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        reader = RecordReader(max(offset, known))
        stream.seek(reader.offset - offset)
        try:
            while piece := stream.read(READ_MAX):
                for record in reader.feed(piece):
                    if reader.offset > start:
                        yield reader.offset, record
        except BadRecord:
            return


def find_end_offset(folder: Path) -> int:
    """The offset after the last complete record."""
    for offset, path in reversed(list_segments(folder)):
        length = complete_length(path.read_bytes())
        if length or not offset:
            return offset + length
    return 0


def parse_log_info(content: Mapping[str, Any]) -> LogInfo:
    places = tuple(LogHost(**place) for place in content["places"])
    return replace(LogInfo(**{**content, "places": ()}), places=places)
