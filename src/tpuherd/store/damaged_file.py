"""Reads what is still readable of a damaged store: jobs, events and history, row by row.

It reads a copy, so that the damaged file stays untouched. The copy gets the valid transactions of
the write-ahead log and a repaired header; then rows on damaged pages are skipped and counted.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from shutil import copyfile
from struct import Struct
from typing import Any

from tpuherd.files import try_lock
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store import event_table as log
from tpuherd.store import job_table
from tpuherd.store.corruption import NAME, OPENED
from tpuherd.store.packed_events import COLUMNS as PACKED_COLUMNS
from tpuherd.store.packed_events import PACKED, EventCondition, PackedRow, may_fit, unpack_rows
from tpuherd.store.schema import TABLES, corrupt_error, migrate_schema

PAGE = 4096  #: SQLite's default page size
HEADER = 100
MAGIC = b"SQLite format 3\0"
WAL_HEADER, FRAME_HEADER = Struct(">8I"), Struct(">6I")
WAL_MAGIC = 0x377F0682  #: the lowest bit: whether checksums are big-endian
FRAME = FRAME_HEADER.size + PAGE
BLIND_MAX = (
    20_000  #: give up after this many unreadable events in a row if the last number is unknown
)
Checksum = tuple[int, int]
Frame = tuple[int, int, Checksum, Checksum, bytes, bytes]  #: page, size, salts, sums, head, body


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadableContents:
    """What could be read."""

    jobs: Sequence[StoredJob] = ()
    settings: Sequence[tuple[str, str]] = ()  #: what all users agree on, as JSON by name
    events: Sequence[tuple[int, HistoryEvent]] = ()
    packed: Sequence[PackedRow] = ()
    history: tuple[int, bytes] | None = None  #: the number of the last event in it, and its bytes
    lost_jobs: Sequence[str] = ()  #: jobs that events mention but that could not be read
    lost_events: int = 0
    blind: bool = False  #: whether more events may be lost than were counted


def read_damaged_file(file: Path, copy: Path) -> ReadableContents:
    """Everything readable in it; `copy` is a temporary file, removed at the end."""
    copy.unlink(missing_ok=True)
    if not file.exists():
        return ReadableContents()
    try:
        copyfile(file, copy)
        apply_write_ahead(file.with_name(f"{file.name}-wal"), copy)
        mend_header(copy)
        with open_copy(copy) as connection:
            return read_tables(connection)
    finally:
        copy.unlink(missing_ok=True)


def refuse_wrong_heads(folder: Path) -> None:
    """Check the headers before SQLite opens the files: it would overwrite a file whose header it
    can't read.

    Only while no process has the store open: closing a file would drop SQLite's locks on it.
    """
    held = try_lock(folder / OPENED)
    if held is None:
        return
    try:
        file = folder / NAME
        wal = file.with_name(f"{NAME}-wal")
        head, wal_head = read_head(file), read_head(wal)
    finally:
        os.close(held)
    if head is not None and head[: len(MAGIC)] != MAGIC:
        begun = wal_head or any(folder.glob("engine*"))  # else its creation was interrupted
        if head or begun:
            raise corrupt_error("the beginning of the file")
    if head and not wal_head and len(head) == HEADER and file_size(head) > file.stat().st_size:
        raise corrupt_error("the end of the file")
    if wal_head and begin_checksums(wal_head)[0] is None:
        raise corrupt_error("the beginning of the write-ahead file")


def read_head(file: Path) -> bytes | None:
    """Its first HEADER bytes; None if the file does not exist."""
    try:
        with file.open("rb") as stream:
            return stream.read(HEADER)
    except FileNotFoundError:
        return None


def file_size(head: bytes) -> int:
    """The file size according to a valid header; 0 if the header gives none."""
    pages = int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0
    return pages * PAGE


# ---- the copy ------------------------------------------------------------------------------------


def apply_write_ahead(wal: Path, copy: Path) -> None:
    """Write the pages of committed transactions from the write-ahead log into the copy."""
    pages: dict[int, bytes] = {}
    since: dict[int, bytes] = {}
    size = 0
    for number, committed, _, _, _, body in proven_frames(wal):
        since[number] = body
        if committed:
            pages |= since
            size, since = committed, {}
    with copy.open("r+b") as stream:
        for number, body in pages.items():
            stream.seek((number - 1) * PAGE)
            stream.write(body)
        if size:
            stream.truncate(size * PAGE)


def proven_frames(wal: Path) -> Iterator[Frame]:
    """The frames whose checksums follow from the previous one. If the start of the log is damaged,
    a frame that fits its predecessor proves both."""
    if not wal.exists():
        return
    with wal.open("rb") as stream:
        head = stream.read(WAL_HEADER.size)
        sums, salts, big = begin_checksums(head)
        before: Frame | None = None
        while (frame := read_frame(stream.read(FRAME))) is not None:
            _, _, frame_salts, frame_sums, prefix, body = frame
            known = sums if sums is not None else before and before[3]
            same = salts is None or salts == frame_salts
            fits = (
                known is not None
                and same
                and wal_checksum(prefix + body, known, big=big) == (frame_sums)
            )
            if fits and sums is None and before is not None and before[2] == frame_salts:
                yield before
            if fits:
                sums, salts = frame_sums, frame_salts
                yield frame
            elif sums is not None:
                return
            before = frame


def begin_checksums(head: bytes) -> tuple[Checksum | None, Checksum | None, bool]:
    """The checksum before the first frame, the salts, and the byte order; None: unknown."""
    native = sys.byteorder == "big"
    if len(head) < WAL_HEADER.size:
        return None, None, native
    magic, _, page, _, salt1, salt2, sum1, sum2 = WAL_HEADER.unpack(head[: WAL_HEADER.size])
    big = bool(magic & 1)
    if (
        magic & ~1 != WAL_MAGIC
        or page != PAGE
        or wal_checksum(head[:24], (0, 0), big=big)
        != (
            sum1,
            sum2,
        )
    ):
        return None, None, native
    return (sum1, sum2), (salt1, salt2), big


def read_frame(piece: bytes) -> Frame | None:
    """One frame of the write-ahead log; None if it is cut."""
    if len(piece) < FRAME:
        return None
    page, size, salt1, salt2, sum1, sum2 = FRAME_HEADER.unpack(piece[: FRAME_HEADER.size])
    head, body = piece[:8], piece[FRAME_HEADER.size :]
    return page, size, (salt1, salt2), (sum1, sum2), head, body


def wal_checksum(piece: bytes, before: Checksum, *, big: bool) -> Checksum:
    """SQLite's checksum over 32-bit words."""
    first, second = before
    words = memoryview(piece).cast("I")
    swap = big != (sys.byteorder == "big")
    for at in range(0, len(words), 2):
        one, two = words[at], words[at + 1]
        if swap:
            one = int.from_bytes(one.to_bytes(4, "little"), "big")
            two = int.from_bytes(two.to_bytes(4, "little"), "big")
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


def mend_header(copy: Path) -> None:
    """Correct the size in the first page. If the page is unusable, replace it with that of a new
    store, whose tables start at the same pages."""
    with copy.open("r+b") as stream:
        first = bytearray(stream.read(PAGE).ljust(PAGE, b"\0"))
        pages = max(1, -(-copy.stat().st_size // PAGE))
        if not has_our_tables(bytes(first), pages):
            first = bytearray(first_page())
        stream.seek(0)
        stream.write(set_page_count(first, pages))
        stream.truncate(pages * PAGE)


def set_page_count(first: bytearray, pages: int) -> bytes:
    """The first page with this page count, without a write-ahead log and free pages."""
    first[18:20] = b"\1\1"
    first[28:32] = pages.to_bytes(4, "big")
    first[32:40] = bytes(8)
    first[92:96] = first[24:28]
    return bytes(first)


def has_our_tables(first: bytes, pages: int) -> bool:
    """Whether this first page lists any of our tables."""
    if first[:16] != MAGIC or int.from_bytes(first[16:18], "big") != PAGE:
        return False
    with closing(sqlite3.connect(":memory:")) as connection, suppress(sqlite3.Error):
        connection.deserialize(set_page_count(bytearray(first), pages) + bytes(PAGE * (pages - 1)))
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return bool({name for (name,) in rows} & TABLES)
    return False


def first_page() -> bytes:
    """The first page of a new store."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate_schema(connection)
        return connection.serialize()[:PAGE]


@contextmanager
def open_copy(copy: Path) -> Iterator[sqlite3.Connection]:
    """Open it read-only, as a file that no other process uses."""
    with closing(sqlite3.connect(f"{copy.as_uri()}?immutable=1", uri=True)) as connection:
        connection.text_factory = bytes.decode
        yield connection


# ---- its rows ------------------------------------------------------------------------------------


def read_tables(connection: sqlite3.Connection) -> ReadableContents:
    """Every readable row."""
    packed, unpacked = try_read(lambda: read_packed_rows(connection)) or ([], 0)
    found, lost, blind = read_events(connection, max((row[0] for row in packed), default=0))
    older = (log.parse_event_row(row)[1] for one in packed for row in unpack_rows(one[4]))
    living = undropped_jobs(chain(older, (event for _, event in found)))
    jobs = read_jobs(connection, sorted({event.job for _, event in found if event.job}))
    return ReadableContents(
        jobs=list(jobs.values()),
        settings=try_read(lambda: connection.execute("SELECT * FROM settings").fetchall()) or (),
        events=found,
        packed=packed,
        history=try_read(lambda: log.read_history(connection)),
        lost_jobs=sorted(living - set(jobs)),
        lost_events=lost + PACKED * unpacked,
        blind=blind,
    )


def read_packed_rows(connection: sqlite3.Connection) -> tuple[list[PackedRow], int]:
    """The rows of packed events whose contents are readable, and how many are not."""
    numbers = connection.execute("SELECT last FROM packed_events ORDER BY last").fetchall()
    rows = [try_read(partial(read_packed_row, connection, last)) for (last,) in numbers]
    found = [row for row in rows if row is not None]
    return found, len(rows) - len(found)


def read_packed_row(connection: sqlite3.Connection, last: int) -> PackedRow:
    row: PackedRow = connection.execute(
        f"SELECT {PACKED_COLUMNS} FROM packed_events WHERE last = ?", (last,)
    ).fetchone()
    for each in unpack_rows(row[4]):
        log.parse_event_row(each)
    may_fit(EventCondition("1", ()), row[2], row[3])
    return row


def read_events(
    connection: sqlite3.Connection, at: int
) -> tuple[list[tuple[int, HistoryEvent]], int, bool]:
    """The events after this number, how many could not be read, and whether more may be lost."""
    last = try_read(lambda: last_event_number(connection))
    found: list[tuple[int, HistoryEvent]] = []
    lost = dark = 0
    while not read_until_error(connection, f"seq > {at} ORDER BY seq", found):
        at = max(at, found[-1][0] if found else 0)
        readable = False
        while not readable:
            if at >= last if last is not None else dark >= BLIND_MAX:
                return found, lost, last is None
            at += 1
            readable = read_until_error(connection, f"seq = {at}", found)
            dark = 0 if readable else dark + 1
            lost += not readable
    return found, lost, False


def read_until_error(
    connection: sqlite3.Connection, where: str, found: list[tuple[int, HistoryEvent]]
) -> bool:
    """Append events to `found` until one can't be read; whether all could be read."""
    statement = f"SELECT {log.COLUMNS} FROM events NOT INDEXED WHERE {where}"
    try:
        found.extend(log.parse_event_row(row) for row in connection.execute(statement))
    except sqlite3.Error:
        return False
    return True


def last_event_number(connection: sqlite3.Connection) -> int | None:
    """The number of the last event that was ever written."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return None if row is None else int(row[0])


def read_jobs(connection: sqlite3.Connection, named: Sequence[str]) -> dict[str, StoredJob]:
    """All jobs; if the table can't be scanned, those that events mention, one by one."""
    found = try_read(lambda: job_table.read_jobs(connection))
    if found is not None:
        return dict(found)
    one_by_one: dict[str, StoredJob] = {}
    for job in named:
        one_by_one |= try_read(lambda job=job: job_table.read_jobs(connection, job)) or {}  # type: ignore[misc]
    return one_by_one


def undropped_jobs(events: Iterator[HistoryEvent]) -> set[str]:
    """Jobs that were submitted and not deleted since."""
    living: set[str] = set()
    for event in events:
        if event.kind == "job.removed":
            living.discard(event.job)
        elif event.kind.startswith("job."):
            living.add(event.job)
    return living


def try_read(read: Callable[[], Any]) -> Any:
    """Its result; None if SQLite fails."""
    try:
        return read()
    except sqlite3.Error:
        return None
