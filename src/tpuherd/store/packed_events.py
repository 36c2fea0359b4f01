"""Old events: a thousand in one compressed row take a twentieth of the room, and stay readable."""

import json
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

from tpuherd.store.connection import Connection
from tpuherd.store.schema import corrupt_error

EVENT_COLUMNS = "seq, at, kind, job, slot, facts"
COLUMNS = "last, first, jobs, kinds, content"
PACKED = 1_000  #: events in one row
BYTES_MAX = 1 << 30  #: of the events in one row

EventRow = tuple[Any, ...]


class EventCondition(NamedTuple):
    """Which events are wanted: a condition of SQL with its values, and what it says of some."""

    where: str
    values: Sequence[str | int]
    job: str | None = None
    kinds: frozenset[str] | None = None


def pack_oldest(connection: Connection, *, before: float, keep: int) -> int:
    """Pack the oldest events if they happened before then, or if more than `keep` are newer.

    Runs within a transaction; returns how many were packed.
    """
    rows = connection.execute(
        f"SELECT {EVENT_COLUMNS} FROM events ORDER BY seq LIMIT ?", (PACKED,)
    ).fetchall()
    if len(rows) < PACKED:
        return 0
    last = rows[-1][0]
    newer = connection.execute(
        "SELECT seq FROM events WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?", (last, keep)
    ).fetchone()
    newest = connection.execute("SELECT 1 FROM events WHERE seq > ? LIMIT 1", (last,)).fetchone()
    is_old = newest is not None and all(at < before for _, at, *_ in rows)
    if newer is None and not is_old:
        return 0
    jobs, kinds = sorted({row[3] for row in rows}), sorted({row[2] for row in rows})
    content = zlib.compress(json.dumps(rows, ensure_ascii=False).encode())
    packed = last, rows[0][0], json.dumps(jobs), json.dumps(kinds), content
    connection.execute(f"INSERT INTO packed_events ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", packed)
    connection.execute("DELETE FROM events WHERE seq <= ?", (last,))
    return len(rows)


def read_packed(
    connection: Connection, condition: EventCondition, after: int, limit: int
) -> tuple[int, list[EventRow]] | None:
    """The first packed events after this number, and up to which number these are all that fit.

    None: what is after this number is not packed.
    """
    end = None
    for last, jobs, kinds in connection.execute(
        "SELECT last, jobs, kinds FROM packed_events WHERE last > ? ORDER BY last", (after,)
    ).fetchall():
        end = last
        if may_fit(condition, jobs, kinds):
            rows = choose_rows(read_content(connection, last), condition, after)
            if rows:
                return (rows[limit - 1][0] if len(rows) > limit else last), rows[:limit]
    return None if end is None else (end, [])


def number_before_packed(
    connection: Connection, condition: EventCondition, *, after: int, limit: int
) -> int | None:
    """The number after which the newest `limit` packed events begin; None if none fits."""
    found = None
    for last, jobs, kinds in connection.execute(
        "SELECT last, jobs, kinds FROM packed_events WHERE last > ? ORDER BY last DESC", (after,)
    ).fetchall():
        if may_fit(condition, jobs, kinds):
            rows = choose_rows(read_content(connection, last), condition, after)[-limit:]
            limit -= len(rows)
            found = rows[0][0] - 1 if rows else found
            if limit <= 0:
                break
    return found


def may_fit(condition: EventCondition, jobs: str, kinds: str) -> bool:
    """Whether there may be a wanted event among those of these jobs and kinds."""
    try:
        known_jobs, known_kinds = frozenset(json.loads(jobs)), frozenset(json.loads(kinds))
    except (ValueError, TypeError, RecursionError) as error:
        raise corrupt_error("a row of packed events") from error
    if condition.job is not None and condition.job not in known_jobs:
        return False
    return condition.kinds is None or not condition.kinds.isdisjoint(known_kinds)


def read_content(connection: Connection, last: int) -> list[EventRow]:
    row = connection.execute("SELECT content FROM packed_events WHERE last = ?", (last,)).fetchone()
    return unpack_rows(row[0]) if row is not None else []


def unpack_rows(content: object) -> list[EventRow]:
    """The rows in a packed one. The database does not check contents. A malformed one is damage:
    it has events of many jobs, and no engine may act without them.
    """
    try:
        text = zlib.decompressobj().decompress(content, BYTES_MAX)  # type: ignore[arg-type]
        rows = [tuple(row) for row in json.loads(text)]
        assert all(map(is_event_row, rows))
    except (zlib.error, ValueError, TypeError, RecursionError, AssertionError) as error:
        raise corrupt_error("a row of packed events") from error
    return rows


def is_event_row(row: EventRow) -> bool:
    types = int, int | float, str, str, str, str
    return len(row) == 6 and all(map(isinstance, row, types)) and abs(row[0]) < 1 << 63


def choose_rows(rows: Sequence[EventRow], condition: EventCondition, after: int) -> list[EventRow]:
    """Those that fit, chosen as the database chooses those in the table."""
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute(f"CREATE TABLE events ({EVENT_COLUMNS})")
        memory.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
        return memory.execute(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE {condition.where} AND seq > ? ORDER BY seq",
            (*condition.values, after),
        ).fetchall()
