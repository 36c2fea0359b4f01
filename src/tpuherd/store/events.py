"""The event log: appended to, never changed; of jobs long dropped the routine goes at last."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator

from tpuherd.core.model import Event

PAGE = 500  #: rows at a time: nobody holds a read for long, and others may write in between


def append(connection: sqlite3.Connection, events: Iterable[Event]) -> int:
    """Add them to the end, within a transaction; the number of the last event of all."""
    connection.executemany(
        "INSERT INTO events (at, kind, job, slot, facts) VALUES (?, ?, ?, ?, ?)",
        (
            (one.at, one.kind, one.job, one.slot, json.dumps(dict(one.facts), ensure_ascii=False))
            for one in events
        ),
    )
    return last(connection)


def prune(
    connection: sqlite3.Connection, kinds: Collection[str], *, before: float, most: int
) -> int:
    """Delete these of jobs dropped before then, within a transaction; how many there were.

    SQLite fills the room they leave. The last event stays: its number tells how far one has read.
    """
    rows = connection.execute(
        "SELECT job, max(at) AS dropped FROM events WHERE kind = 'wish.dropped'"
        " AND job NOT IN (SELECT job FROM wishes) GROUP BY job HAVING dropped < ?",
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


def last(connection: sqlite3.Connection) -> int:
    """The number of the last event; 0 where there is none."""
    found: tuple[int] = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    return found[0]


def chosen(
    *, job: str | None, slot: str | None, kinds: Collection[str] | None
) -> tuple[str, list[str]]:
    """The condition for these, and its values."""
    parts, values = ["1"], []
    for column, value in (("job", job), ("slot", slot)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if kinds is not None:
        parts.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values += kinds
    return " AND ".join(parts), values


def read(
    connection: sqlite3.Connection,
    condition: tuple[str, list[str]],
    *,
    after: int,
    limit: int | None,
) -> Iterator[tuple[int, Event]]:
    """Those behind this number, in order."""
    where, values = condition
    # By kind SQLite would sort all that is left for every page; by number it need not.
    source = "events" if "job" in where else "events NOT INDEXED"
    left = limit
    while left is None or left > 0:
        many = PAGE if left is None else min(PAGE, left)
        rows = connection.execute(
            f"SELECT seq, at, kind, job, slot, facts FROM {source} WHERE {where} AND seq > ?"
            " ORDER BY seq LIMIT ?",
            (*values, after, many),
        ).fetchall()
        for seq, at, kind, job, slot, facts in rows:
            yield seq, Event(at=at, kind=kind, job=job, slot=slot, facts=json.loads(facts))
        if len(rows) < many:
            return
        after = rows[-1][0]
        left = None if left is None else left - len(rows)


def behind_newest(
    connection: sqlite3.Connection, condition: tuple[str, list[str]], *, after: int, limit: int
) -> int:
    """The number behind which are the last so many of them."""
    where, values = condition
    row = connection.execute(
        "SELECT min(seq) FROM"
        f" (SELECT seq FROM events WHERE {where} AND seq > ? ORDER BY seq DESC LIMIT ?)",
        (*values, after, limit),
    ).fetchone()
    return last(connection) if row[0] is None else int(row[0]) - 1
