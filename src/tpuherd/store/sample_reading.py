"""Reads the rows and chunks of a job's sources, at the resolution that the question needs."""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import inf

from tpuherd.store.sample_codec import BadChunk, unpack_chunk
from tpuherd.store.sample_file import COARSE, FINE, Level
from tpuherd.store.sample_packing import group_rows
from tpuherd.store.sample_rows import split_column
from tpuherd.store.thin_series import TimeTable

POINTS = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A host of a slot, or the slot itself."""

    id: int
    slot: str
    host: str
    since: float
    packed: dict[Level, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What to read of each source."""

    names: Collection[str] | None  #: None: all
    since: float
    until: float
    points: int


def read_tables(
    connection: sqlite3.Connection, job: str, of: str, question: Question
) -> Iterator[tuple[Source, TimeTable]]:
    """Yield the sources of a job, or of one of its slots or hosts, with their rows."""
    sources = list_sources(connection, job, of)
    begin = max(question.since, min((source.since for source in sources), default=0.0))
    is_coarse = (question.until - begin) / max(question.points, 1) >= FINE.span_s
    for source in sources:
        table = TimeTable()
        if is_coarse:
            add_level(connection, table, source, COARSE, question)
            add_rows(connection, table, source, FINE, question)
        else:
            fine_since = first_time(connection, source, FINE)
            earlier = replace(question, until=min(question.until, fine_since - 1.0))
            add_level(connection, table, source, COARSE, earlier)
            table.drop_rows(earlier.until)
            add_level(connection, table, source, FINE, question)
        if table.times:
            yield source, table


def list_sources(connection: sqlite3.Connection, job: str, of: str) -> list[Source]:
    rows = connection.execute(
        "SELECT id, slot, host, since, fine_packed, coarse_packed FROM sources WHERE job = ?"
        " AND ? IN ('', slot, host)",
        (job, of),
    )
    return [
        Source(id=id, slot=slot, host=host, since=since, packed={FINE: fine, COARSE: coarse})
        for id, slot, host, since, fine, coarse in rows
    ]


def first_time(connection: sqlite3.Connection, source: Source, level: Level) -> float:
    """Return since when this level has the source; infinite if it does not."""
    chunk = connection.execute(
        "SELECT min(since) FROM chunks WHERE source = ? AND level = ?", (source.id, level.number)
    ).fetchone()[0]
    row = connection.execute(
        f"SELECT min(at) FROM {level.rows} WHERE source = ? AND id > ?",
        (source.id, source.packed[level]),
    ).fetchone()[0]
    return min((at for at in (chunk, row) if at is not None), default=inf)


def add_level(
    connection: sqlite3.Connection,
    table: TimeTable,
    source: Source,
    level: Level,
    question: Question,
) -> None:
    """Add the chunks and rows of one level."""
    chunks = connection.execute(
        "SELECT body FROM chunks WHERE source = ? AND level = ? AND since <= ? AND until >= ?"
        " ORDER BY since",
        (source.id, level.number, question.until, question.since),
    )
    wanted = name_filter(source.host, question.names)
    for (body,) in chunks:
        try:
            table.add_rows(*unpack_chunk(body, wanted))
        except BadChunk:
            continue  # only its samples are lost
    add_rows(connection, table, source, level, question)


def add_rows(
    connection: sqlite3.Connection,
    table: TimeTable,
    source: Source,
    level: Level,
    question: Question,
) -> None:
    """Add the rows that are in no chunk yet."""
    rows = connection.execute(
        f"SELECT id, at, body FROM {level.rows} WHERE source = ? AND id > ? ORDER BY id",
        (source.id, source.packed[level]),
    ).fetchall()
    wanted = name_filter(source.host, question.names)
    for times, columns in group_rows(level, rows, inf):
        kept = {name: column for name, column in columns.items() if wanted(name)}
        table.add_rows(times, kept)


def name_filter(host: str, names: Collection[str] | None) -> Callable[[str], bool]:
    """Return whether a column is asked for."""
    if names is None:
        return lambda column: True
    return lambda column: split_column(column, host)[1] in names
