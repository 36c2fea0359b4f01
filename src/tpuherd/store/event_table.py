"""The event log: append-only; routine events of long deleted jobs are pruned, old ones packed."""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tpuherd.history.event_kinds import has_required_facts
from tpuherd.history.fact_types import find_wrong_fact
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.store.connection import Connection
from tpuherd.store.packed_events import EventCondition, number_before_packed, read_packed
from tpuherd.store.schema import MalformedRows, corrupt_error, decode_row, is_time

COLUMNS = "seq, at, kind, job, slot, facts"
PAGE = 500  #: rows per read, so that no read transaction lasts long
LATEST = 200  #: recent events among which the latest is sought
MALFORMED = "malformed"  #: the kind that readers see instead: one that they do not know
#: What a user's command records, if the engine has something to do for it.
CHANGE_KINDS = ("job.submitted", "job.changed", "job.resumed", "job.stopped", "job.removed")
MACHINE_TIMED = (*CHANGE_KINDS, "engine.crashed")  #: written by the clock of some machine


def append_events(connection: Connection, events: Iterable[HistoryEvent]) -> int:
    """Append them within a transaction; returns the number of the last event."""
    connection.executemany(
        "INSERT INTO events (at, kind, job, slot, facts) VALUES (?, ?, ?, ?, ?)",
        ((one.at, one.kind, one.job, one.slot, json.dumps(dict(one.facts))) for one in events),
    )
    return last_number(connection)


def has_change_since(connection: Connection, number: int) -> bool:
    """Whether a user's command has changed a job after this event."""
    row = connection.execute(
        f"SELECT 1 FROM events WHERE seq > ? AND kind IN ({', '.join('?' * len(CHANGE_KINDS))})"
        " LIMIT 1",
        (number, *CHANGE_KINDS),
    ).fetchone()
    return row is not None


def prune_events(
    connection: Connection, kinds: Collection[str], *, before: float, most: int
) -> int:
    """Delete events of these kinds of jobs that were deleted before then; returns how many.

    Runs within a transaction. The database reuses the space. The last event stays, because readers
    remember its number.
    """
    rows = connection.execute(
        "SELECT job, max(at) FROM events WHERE kind = 'job.removed'"
        " AND job NOT IN (SELECT job FROM jobs) GROUP BY job HAVING max(at) < ?",
        (before,),
    ).fetchall()
    left = most
    for job, _ in rows:
        done = connection.execute(
            "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE job = ?"
            f" AND kind IN ({', '.join('?' * len(kinds))}) AND at < ?"
            " AND seq < (SELECT max(seq) FROM events) ORDER BY seq LIMIT ?)",
            (job, *kinds, before, left),
        )
        left -= done.rowcount
        if left <= 0:
            break
    return most - left


def last_number(connection: Connection) -> int:
    """The number of the last event; 0 if there are no events."""
    found: tuple[int] = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    return found[0]


def latest_time(connection: Connection) -> float:
    """The latest time of recent events that an engine wrote by its own clock."""
    marks = ", ".join("?" * len(MACHINE_TIMED))
    rows = connection.execute(
        f"SELECT at FROM events WHERE kind NOT IN ({marks}) ORDER BY seq DESC LIMIT ?",
        (*MACHINE_TIMED, LATEST),
    )
    return max((at for (at,) in rows if is_time(at)), default=0.0)


def event_condition(
    *,
    job: str | None,
    slot: str | None,
    kinds: Collection[str] | None,
    before: int | None = None,
) -> EventCondition:
    """The condition for these filters."""
    parts, values = ["1 = 1"], list[str | int]()
    if before is not None:
        parts.append("seq < ?")
        values.append(before)
    for column, value in (("job", job), ("slot", slot)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if kinds is not None:
        # PostgreSQL knows no empty list.
        parts.append(f"kind IN ({', '.join('?' * len(kinds))})" if kinds else "1 = 0")
        values += kinds
    chosen = None if kinds is None else frozenset(kinds)
    return EventCondition(" AND ".join(parts), values, job, chosen)


def read_events(
    connection: Connection,
    condition: EventCondition,
    malformed: MalformedRows,
    *,
    after: int,
    limit: int | None,
) -> Iterator[tuple[int, HistoryEvent]]:
    """The events after this number, in order, packed ones first.

    Who asks for a kind gets no events that lack facts of their kind.
    """
    where, values, *_ = condition
    # With the index on kind SQLite would sort all remaining rows for every page.
    source = "events" if "job" in where else "events NOT INDEXED"
    left = limit
    while left is None or left > 0:
        many = PAGE if left is None else min(PAGE, left)
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM {source} WHERE {where} AND seq > ? ORDER BY seq LIMIT ?",
            (*values, after, many),
        ).fetchall()
        # Looked at second: what is packed between the two is read twice rather than never.
        packed = read_packed(connection, condition, after, many)
        if packed is not None:
            after, rows = packed
        for row in rows:
            seq, event = parse_event_row(row, malformed)
            whole = event.kind != MALFORMED and has_required_facts(event)
            if condition.kinds is None or whole:
                left = None if left is None else left - 1
                yield seq, event
        if packed is None:
            if len(rows) < many:
                return
            after = rows[-1][0]


def parse_event_row(row: tuple[Any, ...], malformed: MalformedRows) -> tuple[int, HistoryEvent]:
    """A row's event and number, without its facts if they are malformed, so that it changes
    nothing. The database does not check contents.
    """
    seq, at, kind, job, slot, facts = row
    words = all(isinstance(one, str) for one in (kind, job, slot))
    if not (words and isinstance(at, int | float)):
        raise corrupt_error(f"event {seq}")
    known = decode_row(facts)
    head, _, tail = slot.rpartition("-")
    if known is None or not is_time(at) or (slot and not (head == job and is_place(tail))):
        wrong, at, kind, slot = "row", at if is_time(at) else 0.0, MALFORMED, ""
    else:
        wrong = find_wrong_fact(kind, known)
    if wrong:
        what = f"the {wrong} of event {seq}{f' of {job[:60]}' if job else ''}"
        malformed.add(what, "it is left out", damage=known is None)
        known = {"why": f"{what} has contents that herd never writes: it is left out"}
        kind = kind if has_required_facts(HistoryEvent(at=at, kind=kind)) else MALFORMED
    return seq, HistoryEvent(at=at, kind=kind, job=job, slot=slot, facts=known or {})


def is_place(text: str) -> bool:
    """Whether it is the number of a slot."""
    return text.isascii() and text.isdigit() and len(text) < 10


def read_history(connection: Connection) -> tuple[int, bytes] | None:
    """The saved history, and the number of the last event in it; None if an older herd wrote it."""
    row = connection.execute("SELECT seq, document FROM history").fetchone()
    found = row is not None and isinstance(row[0], int) and isinstance(row[1], bytes)
    return row if found else None


def number_before_newest(
    connection: Connection,
    condition: EventCondition,
    *,
    after: int,
    limit: int,
) -> int:
    """The number after which the newest `limit` events of these come."""
    where, values, *_ = condition
    first, many = connection.execute(
        "SELECT min(seq), count(*) FROM"
        f" (SELECT seq FROM events WHERE {where} AND seq > ? ORDER BY seq DESC LIMIT ?) AS newest",
        (*values, after, limit),
    ).fetchone()
    if many < limit:
        left = limit - many
        packed = number_before_packed(connection, condition, after=after, limit=left)
        if packed is not None:
            return packed
    return last_number(connection) if first is None else int(first) - 1


def save_history(connection: Connection, seq: int, content: bytes) -> None:
    """Replace the saved history, within a transaction."""
    connection.execute(
        "INSERT INTO history (one, seq, document) VALUES (1, ?, ?) ON CONFLICT (one)"
        " DO UPDATE SET seq = excluded.seq, document = excluded.document",
        (seq, content),
    )
