"""Packs the rows of a source into a chunk once they span long enough."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tpuherd.store.sample_codec import pack_chunk
from tpuherd.store.sample_file import COARSE, FINE, LEVELS, Level
from tpuherd.store.sample_rows import (
    CoarseRow,
    Columns,
    HostRow,
    SlotRow,
    coarse_to_columns,
    rows_to_columns,
    summarize_columns,
)

SPREAD = 0.618034  #: of the golden ratio: consecutive numbers get the most different shares
BACK_S = 60.0  #: a clock that was set back further begins a new chunk
DECODERS = {
    FINE: msgspec.msgpack.Decoder(HostRow | SlotRow),
    COARSE: msgspec.msgpack.Decoder(CoarseRow),
}


@dataclass(kw_only=True, slots=True)
class OpenRun:
    """The rows of a source that are in no chunk yet."""

    first: int  #: the id of the first row
    due_at: float  #: when to pack them


@dataclass(kw_only=True, slots=True)
class OpenRuns:
    """The open runs of all sources, by level."""

    runs: dict[Level, dict[int, OpenRun]] = field(
        default_factory=lambda: {level: {} for level in LEVELS}
    )

    def add_row(self, level: Level, source: int, row: int, at: float) -> None:
        """Note a row that was just written."""
        due_at = at + span_s(level, source)
        known = self.runs[level].get(source)
        if known is None:
            self.runs[level][source] = OpenRun(first=row, due_at=due_at)
        elif due_at < known.due_at - BACK_S:
            known.due_at = due_at

    def first_row(self, level: Level) -> int | None:
        """Return the oldest row that is in no chunk."""
        return min((run.first for run in self.runs[level].values()), default=None)

    def due_sources(self, level: Level, now: float, most: int) -> list[int]:
        due = [(run.due_at, one) for one, run in self.runs[level].items() if run.due_at <= now]
        return [source for _, source in sorted(due)[:most]]


def span_s(level: Level, source: int) -> float:
    """Return how long a source's chunks are: they differ, so that not all are due at once."""
    return level.span_s * (0.75 + 0.5 * (source * SPREAD % 1.0))


def load_open_runs(connection: sqlite3.Connection) -> OpenRuns:
    """Find the rows that an earlier engine left."""
    found = OpenRuns()
    for level in LEVELS:
        rows = connection.execute(
            f"SELECT r.source, min(r.id), r.at FROM {level.rows} r JOIN sources s"
            f" ON s.id = r.source WHERE r.id > s.{level.packed} GROUP BY r.source"
        )
        for source, first, at in rows:
            found.add_row(level, source, first, at)
    return found


def pack_due_rows(connection: sqlite3.Connection, runs: OpenRuns, now: float, most: int) -> None:
    """Pack what is due, of at most so many sources, and delete rows that all are packed."""
    for level in LEVELS:
        for source in runs.due_sources(level, now, most):
            pack_source(connection, runs, level, source)
        first = runs.first_row(level)
        if first is None:
            connection.execute(f"DELETE FROM {level.rows}")
        else:
            connection.execute(f"DELETE FROM {level.rows} WHERE id < ?", (first,))


def pack_source(connection: sqlite3.Connection, runs: OpenRuns, level: Level, source: int) -> None:
    """Pack all open rows of one source."""
    run = runs.runs[level].pop(source)
    rows = connection.execute(
        f"SELECT id, at, body FROM {level.rows} WHERE source = ? AND id >= ? ORDER BY id",
        (source, run.first),
    ).fetchall()
    (host,) = connection.execute("SELECT host FROM sources WHERE id = ?", (source,)).fetchone() or (
        None,
    )
    if not rows or host is None:
        return
    for times, columns in group_rows(level, rows, span_s(level, source)):
        connection.execute(
            "INSERT INTO chunks (source, level, since, until, body) VALUES (?, ?, ?, ?, ?)",
            (source, level.number, min(times), max(times), pack_chunk(times, columns)),
        )
        if level is FINE:
            middle = sum(times) / len(times)
            body = msgspec.msgpack.encode(summarize_columns(columns, host))
            added = connection.execute(
                "INSERT INTO coarse_rows (source, at, body) VALUES (?, ?, ?)",
                (source, middle, body),
            )
            runs.add_row(COARSE, source, added.lastrowid or 0, middle)
    connection.execute(f"UPDATE sources SET {level.packed} = ? WHERE id = ?", (rows[-1][0], source))


def group_rows(
    level: Level, rows: Sequence[tuple[int, float, bytes]], most_s: float
) -> Iterator[tuple[list[float], Columns]]:
    """Yield times and columns of rows that are not too far apart; damaged rows are left out."""
    times: list[float] = []
    bodies: list[Any] = []
    for _, at, body in rows:
        try:
            content = DECODERS[level].decode(body)
        except msgspec.DecodeError:
            continue
        if times and not times[-1] - BACK_S <= at <= times[0] + most_s * 1.25:
            yield times, to_columns(level, bodies)
            times, bodies = [], []
        times.append(at)
        bodies.append(content)
    if times:
        yield times, to_columns(level, bodies)


def to_columns(level: Level, bodies: Sequence[Any]) -> Columns:
    return coarse_to_columns(bodies) if level is COARSE else rows_to_columns(bodies)
