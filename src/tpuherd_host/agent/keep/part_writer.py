"""Writes files as parts: pieces of one tar stream, a few at a time.

A part has whole files, a large file has parts of its own. Each file is read only as one look at it
found it: what the kernel says of it is compared at its first and after its last byte.
"""

import ctypes
import errno
import hashlib
import os
import stat
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import FileIO
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tpuherd_host.agent.keep.file_listing import FileEntry, make_entry
from tpuherd_host.agent.keep.kept_manifest import (
    FILE,
    FOLDER,
    LINK,
    SEGMENTS_MAX,
    Generation,
    Part,
    Row,
    Segments,
    member_name,
    parts_prefix,
)
from tpuherd_host.agent.keep.kept_store import PIECE, KeptStore

PART = 64_000_000  #: bytes, a multiple of a tar stream's blocks
BLOCK = 512
HEADER_MAX = 6 * BLOCK  #: of a file's header, apart from its name
AT_ONCE = 4
NICE, IDLE_IO = 19, 3 << 13
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)  #: no longer what it was
TYPES = {FILE: tarfile.REGTYPE, FOLDER: tarfile.DIRTYPE, LINK: tarfile.SYMTYPE}


Digest = Any  #: a hash of hashlib


class Changed(Exception):
    """A file is not as it was found."""


class TimeOver(OSError):
    """The time for a copy is over."""


class Prefix(NamedTuple):
    """What the first bytes of a file must be."""

    length: int
    sha256: str


class Take(NamedTuple):
    """A file, folder or link to copy."""

    path: bytes  #: as in rows
    place: bytes  #: where it is
    entry: FileEntry
    code: str = ""
    grows: bool = False  #: it may get longer meanwhile: it is copied to the length that was found
    prefix: Optional[Prefix] = None

    @property
    def bytes_max(self) -> int:
        """How much of a part it takes, at most."""
        return HEADER_MAX + 3 * len(self.path) + 2 * BLOCK + self.entry.size


class Deadline:
    """When a copy must be done."""

    def __init__(self, time_s: Optional[float]) -> None:
        self._until = None if time_s is None else time.monotonic() + time_s

    def check(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise TimeOver("the time was over before all was copied")


class Written(NamedTuple):
    parts: List[Part]
    rows: Dict[bytes, Tuple[FileEntry, Row]]
    changed: List[bytes]  #: files that were not as they were found


class PartWriter:
    """Writes the parts of one generation of one worker."""

    def __init__(self, store: KeptStore, generation: Generation, worker: int) -> None:
        self._store, self.generation, self._deadline = store, generation, Deadline(None)
        self._prefix, self._count = f"{parts_prefix(worker)}{generation}", 0

    def write(self, takes: Sequence[Take], deadline: Deadline, *, calm: bool) -> Written:
        """Write these files to new parts; a file that is not as it was found costs its part."""
        written, self._deadline = Written([], {}, []), deadline
        begin = calm_thread if calm else None
        with ThreadPoolExecutor(AT_ONCE, initializer=begin) as pool:
            tasks = [pool.submit(self._write_group, *group) for group in self._plan_groups(takes)]
            failure: Optional[BaseException] = None
            for task in tasks:
                try:
                    parts, rows = task.result()
                except Changed as error:
                    written.changed.append(error.args[0])
                except (OSError, ValueError) as error:
                    if failure is None or isinstance(failure, TimeOver):
                        failure = error
                    self._deadline = Deadline(0)  # the others may stop
                else:
                    written.parts.extend(parts)
                    written.rows.update(rows)
        if failure is not None:
            raise failure
        return written

    def _plan_groups(self, takes: Sequence[Take]) -> Iterator[Tuple[List[Take], int]]:
        """Yield the files of each part, or a large one alone, with the number of its first part."""
        group: List[Take] = []
        size = 0
        for take in takes:
            if group and size + take.bytes_max > PART:
                yield group, self._reserve(size)
                group, size = [], 0
            group.append(take)
            size += take.bytes_max
        if group:
            yield group, self._reserve(size)

    def _reserve(self, size: int) -> int:
        first = self._count
        self._count += size // PART + 1
        return first

    def _write_group(
        self, group: List[Take], number: int
    ) -> Tuple[List[Part], Dict[bytes, Tuple[FileEntry, Row]]]:
        rows: List[Row] = []
        parts: List[Part] = []
        first = f"{self._prefix}.{number:04}.tar"
        stream = Stream(self._iter_blocks(group, first, rows))
        while not stream.is_done():
            name = f"{self._prefix}.{number + len(parts):04}.tar"
            self._store.write_stream(name, stream.iter_portion(PART))
            parts.append(Part(name, stream.taken))
        return parts, {take.path: (take.entry, row) for take, row in zip(group, rows)}

    def _iter_blocks(self, group: List[Take], part: str, rows: List[Row]) -> Iterator[bytes]:
        at = 0
        for take in group:
            begun = at
            try:
                for block in iter_member(take, part, at, rows):
                    self._deadline.check()
                    at += len(block)
                    yield block
            except OSError as error:
                if error.errno in VANISHED:
                    raise Changed(take.path) from None
                raise
            if (at - begun) % BLOCK:
                yield bytes(-(at - begun) % BLOCK)
                at += -(at - begun) % BLOCK


class Stream:
    """Blocks of bytes, taken in portions."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest, self.taken = blocks, b"", 0

    def is_done(self) -> bool:
        if not self._rest:
            self._rest = next(self._blocks, b"")
        return not self._rest

    def iter_portion(self, most: int) -> Iterator[bytes]:
        self.taken = 0
        while self.taken < most and not self.is_done():
            block, self._rest = self._rest[: most - self.taken], self._rest[most - self.taken :]
            self.taken += len(block)
            yield block


# ---- a file as a member of the stream ------------------------------------------------------------


def iter_member(take: Take, part: str, at: int, rows: List[Row]) -> Iterator[bytes]:
    """Yield header and content; add the row when all is read."""
    entry, mode = take.entry, stat.S_IMODE(take.entry.mode)
    if not entry.is_file:
        kind, target = (FOLDER, b"") if entry.is_folder else (LINK, os.readlink(take.place))
        rows.append(Row(take.path, kind, mode, entry.mtime_ns, 0, "", part, at, target, take.code))
        if not make_entry(os.lstat(take.place)).is_same(entry):
            raise Changed(take.path)
        yield make_header(rows[-1], b"")
        return
    with open_unfollowed(take.place) as file:
        raise_if_changed(take, file)
        segments = None if take.grows else find_segments(file, entry)
        row = Row(take.path, FILE, mode, entry.mtime_ns, entry.size, "", part, at)
        row = row._replace(code=take.code, segments=segments)
        header = make_header(row, format_segments(segments))
        yield header
        digest = hashlib.sha256()
        for piece in iter_content(take, file, segments, digest):
            digest.update(piece)
            yield piece
        raise_if_changed(take, file)
    rows.append(row._replace(offset=at + len(header), sha256=digest.hexdigest()))


def iter_content(
    take: Take, file: FileIO, segments: Optional[Segments], digest: Digest
) -> Iterator[bytes]:
    """Yield what is between holes, once its first bytes are what they must be."""
    if take.prefix:
        yield from iter_bytes(take.path, file, 0, take.prefix.length)
        if digest.hexdigest() != take.prefix.sha256:
            raise Changed(take.path)
        segments = ((take.prefix.length, take.entry.size - take.prefix.length),)
    for start, length in ((0, take.entry.size),) if segments is None else segments:
        yield from iter_bytes(take.path, file, start, length)


def iter_bytes(path: bytes, file: FileIO, start: int, length: int) -> Iterator[bytes]:
    file.seek(start)
    while length:
        piece = file.read(min(PIECE, length))
        if not piece:
            raise Changed(path)
        length -= len(piece)
        yield piece


def open_unfollowed(place: bytes) -> FileIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return FileIO(os.open(place, flags), "rb")


def raise_if_changed(take: Take, file: FileIO) -> None:
    found = make_entry(os.fstat(file.fileno()))
    if take.grows:
        same = found.inode == take.entry.inode and found.size >= take.entry.size
    else:
        same = found.is_same(take.entry)
    if not same:
        raise Changed(take.path)


def digest_file(take: Take, length: int, deadline: Deadline) -> Tuple[str, Optional[Segments]]:
    """Return the digest of a file's first bytes, or of what is between its holes; "" if it is not
    that long."""
    with suppress(Changed, FileNotFoundError), open_unfollowed(take.place) as file:
        if file.seek(0, os.SEEK_END) >= length:
            segments = None if take.grows else find_segments(file, take.entry)
            digest = hashlib.sha256()
            for start, many in ((0, length),) if segments is None else segments:
                for piece in iter_bytes(take.path, file, start, many):
                    deadline.check()
                    digest.update(piece)
            return digest.hexdigest(), segments
    return "", None


def find_segments(file: FileIO, entry: FileEntry) -> Optional[Segments]:
    """Return what is between a file's holes; None if it has none, or too many."""
    if entry.stored >= entry.size:
        return None
    found: List[Tuple[int, int]] = []
    end = 0
    while end < entry.size and len(found) < SEGMENTS_MAX:
        try:
            start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = min(entry.size, os.lseek(file.fileno(), start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno != errno.ENXIO:  # the file system does not tell
                return None
            start = end = entry.size
        found.append((start, end - start))
    return tuple(found) if end >= entry.size and found != [(0, entry.size)] else None


def format_segments(segments: Optional[Segments]) -> bytes:
    """Return the list of what is between holes as GNU tar 1.0 reads it."""
    if segments is None:
        return b""
    lines = [len(segments), *(number for pair in segments for number in pair)]
    text = b"".join(b"%d\n" % line for line in lines)
    return text + bytes(-len(text) % BLOCK)


def member_size(row: Row) -> int:
    """Return what a file takes of its part, about: its headers are three blocks and its name."""
    return 3 * BLOCK + len(row.path) + row.stored_bytes + -row.stored_bytes % BLOCK


def make_header(row: Row, holes: bytes) -> bytes:
    """Return a file's header in the tar stream, and the list of what is between its holes."""
    info = tarfile.TarInfo(os.fsdecode(member_name(row.path)))
    info.type, info.mode, info.linkname = TYPES[row.kind], row.mode, os.fsdecode(row.target)
    info.size = len(holes) + row.stored_bytes if row.kind == FILE else 0
    seconds, rest = divmod(abs(row.mtime_ns), 10**9)
    sign = "-" if row.mtime_ns < 0 else ""
    info.mtime, info.pax_headers = 0, {"mtime": f"{sign}{seconds}.{rest:09}"}
    if row.segments is not None:
        above, _, name = info.name.rpartition("/")
        kept = {"major": "1", "minor": "0", "name": info.name, "realsize": str(row.size)}
        info.pax_headers.update({f"GNU.sparse.{word}": text for word, text in kept.items()})
        info.name = f"{above}/GNUSparseFile.0/{name}"
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + holes


def calm_thread() -> None:
    """Give way to the command: this thread takes what processor and disk have left."""
    number = IOPRIO_SET.get(os.uname().machine)
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        if number is not None:
            library.syscall(number, 1, 0, IDLE_IO)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
