"""Keeps what hosts, chips and scripts did, for charts: one day in full, 30 days by ten minutes.

The engine writes, any number of processes read. Rows come in as they are; after about ten minutes
those of one source are packed into a chunk, and their lowest, mean and highest values become one
coarse row; a day of coarse rows becomes a chunk too. Sources are packed at different times, so that
no write takes long. Nothing of this is part of the recorded truth: the file may be deleted.
"""

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tpuherd.errors import HerdError, OperationFailed
from tpuherd.model.samples import HostSample, Series, SeriesName
from tpuherd.store import sample_file
from tpuherd.store.sample_file import BYTES_MAX, FINE, LEVELS, NAME, PAGE, WrongFormat
from tpuherd.store.sample_packing import OpenRuns, load_open_runs, pack_due_rows
from tpuherd.store.sample_reading import POINTS, Question, read_tables
from tpuherd.store.sample_rows import host_row, split_column
from tpuherd.store.thin_series import thin_table
from tpuherd.targets import natural_key

TIDY_S = 600.0
LATEST_S = 86_400.0  #: how long a silent host's last sample is shown
NAMES_MAX = 200  #: of values of one slot
PACKED_MAX = 200  #: sources per write, so that a write after a long pause is not long
TRIM_BYTES = BYTES_MAX * 9 // 10  #: of the file: then the oldest chunks are deleted
TRIM_CHUNKS = 2_000
LATEST = msgspec.msgpack.Decoder(HostSample)
#: A series, a time and the value at that time.
Value = tuple[SeriesName, float, float]


class SampleStore:
    """The samples of a project. The engine's own instance writes; others only read.

    Its methods may be called in any thread. `put_samples`, `forget_jobs` and `read_series` raise
    HerdError; after that the next call begins anew.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / NAME
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._is_writer = False
        self._opened = 0
        self._lock = threading.Lock()
        self._tidy_at = 0.0
        self._forget_caches()

    def put_samples(self, hosts: Iterable[HostSample], values: Iterable[Value]) -> None:
        """Keep what came in since the last call: a few seconds' worth, not one by one."""
        with self._write_transaction() as connection:
            rows, latest = [], []
            now = 0.0
            for sample in hosts:
                source = self._source_id(
                    connection, sample.job, sample.slot, sample.host, sample.at
                )
                rows.append((source, sample.at, msgspec.msgpack.encode(host_row(sample))))
                body = msgspec.msgpack.encode(sample)
                latest.append((sample.host, sample.job, sample.at, body))
                now = max(now, sample.at)
            for (source, at), row in self._slot_rows(connection, values).items():
                rows.append((source, at, msgspec.msgpack.encode(row)))
                now = max(now, at)
            connection.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?)", latest)
            for source, at, body in rows:
                added = connection.execute(
                    "INSERT INTO fine_rows (source, at, body) VALUES (?, ?, ?)", (source, at, body)
                )
                self._runs.add_row(FINE, source, added.lastrowid or 0, at)
            pack_due_rows(connection, self._runs, now, PACKED_MAX)
            if now >= self._tidy_at:
                self._delete_old(connection, now)
        self._changes += 1
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_S
            self._free_pages()

    def latest_hosts(self) -> Mapping[str, HostSample]:
        """The last sample of each host that was heard within a day; none if they can't be read."""
        try:
            with self._read_transaction() as connection:
                rows = (
                    connection.execute("SELECT host, body FROM latest").fetchall()
                    if connection
                    else ()
                )
            return {host: LATEST.decode(body) for host, body in rows}
        except (HerdError, msgspec.DecodeError):
            return {}

    def change_counter(self) -> int:
        """A number that differs after every change, as one instance sees it."""
        try:
            with self._read_transaction() as connection:
                found = connection.execute("PRAGMA data_version").fetchone()[0] if connection else 0
        except HerdError:
            found = 0
        counted: int = (self._opened << 32) + found + self._changes
        return counted

    def read_series(
        self,
        job: str,
        names: Collection[str] | None = None,
        *,
        since: float,
        until: float,
        points: int = POINTS,
        of: str = "",
    ) -> list[Series]:
        """The series of these names (None: all) that have a value in this time, thinned.

        `of`: only those of this slot (`gpt-0`) with its hosts, or of this host (`gpt-0-g1-7kq/w3`).
        """
        question = Question(names=names, since=since, until=until, points=points)
        found = []
        with self._read_transaction() as connection:
            tables = [] if connection is None else list(read_tables(connection, job, of, question))
        for source, table in tables:
            for column, kept in thin_table(table, since=since, until=until, points=points).items():
                chip, name = split_column(column, source.host)
                if kept:
                    title = SeriesName(
                        job=job, slot=source.slot, host=source.host, chip=chip, name=name
                    )
                    found.append(Series(name=title, points=kept))
        return sorted(found, key=series_order)

    def forget_jobs(self, jobs: Collection[str]) -> None:
        """Delete all samples of jobs that were removed long ago."""
        if not jobs or not self.file.exists():
            return
        with self._write_transaction() as connection:
            for job in jobs:
                ours = "(SELECT id FROM sources WHERE job = ?)"
                for table in ("chunks", *(level.rows for level in LEVELS)):
                    connection.execute(f"DELETE FROM {table} WHERE source IN {ours}", (job,))
                for table in ("sources", "latest"):
                    connection.execute(f"DELETE FROM {table} WHERE job = ?", (job,))
            self._forget_caches()
            self._runs = load_open_runs(connection)
        self._changes += 1

    def close(self) -> None:
        with self._lock:
            self._close()

    # ---- writing ---------------------------------------------------------------------------------

    def _source_id(
        self, connection: sqlite3.Connection, job: str, slot: str, host: str, at: float
    ) -> int:
        key = (job, slot, host)
        if key not in self._sources:
            connection.execute(
                "INSERT OR IGNORE INTO sources (job, slot, host, since) VALUES (?, ?, ?, ?)",
                (*key, at),
            )
            (self._sources[key],) = connection.execute(
                "SELECT id FROM sources WHERE job = ? AND slot = ? AND host = ?", key
            ).fetchone()
        return self._sources[key]

    def _slot_rows(
        self, connection: sqlite3.Connection, values: Iterable[Value]
    ) -> dict[tuple[int, float], dict[str, float]]:
        """Values of the same time, as one row; a slot has a bounded number of names."""
        rows: defaultdict[tuple[int, float], dict[str, float]] = defaultdict(dict)
        for name, at, value in values:
            source = self._source_id(connection, name.job, name.slot, name.host, at)
            column = name.name if name.chip is None else f"{name.chip}/{name.name}"
            known = self._names[source]
            if column in known or len(known) < NAMES_MAX:
                known.add(column)
                rows[source, at][column] = float(value)
        return rows

    def _delete_old(self, connection: sqlite3.Connection, now: float) -> None:
        """Delete what is past its time, and the oldest chunks of a file that is too large."""
        for level in LEVELS:
            connection.execute(
                "DELETE FROM chunks WHERE level = ? AND until < ?",
                (level.number, now - level.keep_s),
            )
        connection.execute("DELETE FROM latest WHERE at < ?", (now - LATEST_S,))
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        if (pages - free) * PAGE > TRIM_BYTES:
            connection.execute(
                "DELETE FROM chunks WHERE id IN"
                " (SELECT id FROM chunks ORDER BY level, until LIMIT ?)",
                (TRIM_CHUNKS,),
            )
        gone = connection.execute(
            "DELETE FROM sources WHERE since < ?"
            " AND NOT EXISTS (SELECT 1 FROM chunks WHERE source = sources.id)"
            " AND NOT EXISTS (SELECT 1 FROM fine_rows WHERE source = sources.id)"
            " AND NOT EXISTS (SELECT 1 FROM coarse_rows WHERE source = sources.id)",
            (now - FINE.keep_s,),
        )
        if gone.rowcount:
            self._sources.clear()

    def _free_pages(self) -> None:
        """Give pages back to the disk; not in a transaction, where it would have no effect."""
        with self._lock:
            if self._connection is not None:
                try:
                    self._connection.execute("PRAGMA incremental_vacuum(2000)").fetchall()
                except sqlite3.Error:
                    return  # the next write finds the reason

    def _forget_caches(self) -> None:
        self._changes = 0
        self._sources: dict[tuple[str, str, str], int] = {}
        self._names: defaultdict[int, set[str]] = defaultdict(set)
        self._runs = OpenRuns()
        self._tidy_at = 0.0

    # ---- the file --------------------------------------------------------------------------------

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explain_trouble():
            self._is_writer = True
            connection = self._open_connection()
            assert connection is not None
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _read_transaction(self) -> Iterator[sqlite3.Connection | None]:
        """Yield None if there are no samples yet."""
        with self._lock, self._explain_trouble():
            connection = self._open_connection()
            if connection is not None:
                connection.execute("BEGIN")
            yield connection
            if connection is not None:
                connection.execute("COMMIT")

    @contextmanager
    def _explain_trouble(self) -> Iterator[None]:
        """Close the file after an error; the writer sets a damaged one aside."""
        done = False
        try:
            with sample_file.explain_trouble(self.file.parent):
                yield
                done = True
        except (sqlite3.Error, WrongFormat) as error:
            self._close()
            if self._is_writer:
                raise sample_file.set_samples_aside(self.file) from error
            raise OperationFailed(
                f"the samples in {self.file} can't be read ({error})",
                hint="the engine replaces them at its next write",
            ) from error
        finally:
            if not done:
                self._close()

    def _open_connection(self) -> sqlite3.Connection | None:
        """Open the file, anew if it was deleted or replaced."""
        try:
            inode = self.file.stat().st_ino
        except FileNotFoundError:
            inode = 0
        if self._connection is not None and inode == self._inode:
            return self._connection
        self._close()
        self._connection = sample_file.open_file(self.file, create=self._is_writer)
        if self._connection is not None:
            self._inode = self.file.stat().st_ino
            self._opened += 1
            if self._is_writer:
                self._runs = load_open_runs(self._connection)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._forget_caches()


def series_order(series: Series) -> tuple[object, ...]:
    """By slot, host, chip and name."""
    name = series.name
    chip = -1 if name.chip is None else name.chip
    return natural_key(name.slot), natural_key(name.host), chip, name.name
