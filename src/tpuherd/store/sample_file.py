"""The file of the samples: its tables, its limits, and what happens when it is damaged.

    sources       what a row is about: a host of a slot, or the slot itself
    fine_rows     samples as they came, until their chunk is packed; then they are deleted in bulk
    coarse_rows   lowest, mean and highest values of about ten minutes, until theirs is
    chunks        packed tables of both levels (sample_codec.py)
    latest        the last sample of each host

Nothing here is worth a wait: no write is synced by itself, and a damaged file is replaced.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage

from tpuherd.errors import HerdError, OperationFailed
from tpuherd.store.corruption import BUSY, DAMAGES, OTHER_TABLES, ROOM

NAME = "samples.sqlite"
ASIDE = "samples.damaged"
BESIDES = ("-wal", "-shm")  #: files that SQLite keeps beside it
FORMAT = 1
BUSY_S = 10.0
PAGE = 4096
BYTES_MAX = 2 << 30  #: of the file; then the oldest chunks go
FULL = "the engine works on; free some space, and the charts continue"
TABLES = """
    CREATE TABLE sources (
        id INTEGER PRIMARY KEY, job TEXT NOT NULL, slot TEXT NOT NULL, host TEXT NOT NULL,
        since REAL NOT NULL, fine_packed INTEGER NOT NULL DEFAULT 0,
        coarse_packed INTEGER NOT NULL DEFAULT 0, UNIQUE (job, slot, host)
    );
    CREATE TABLE fine_rows (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, at REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX fine_rows_of_source ON fine_rows (source);
    CREATE TABLE coarse_rows (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, at REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX coarse_rows_of_source ON coarse_rows (source);
    CREATE TABLE chunks (
        id INTEGER PRIMARY KEY, source INTEGER NOT NULL, level INTEGER NOT NULL,
        since REAL NOT NULL, until REAL NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX chunks_of_source ON chunks (source, level, since);
    CREATE INDEX chunks_by_age ON chunks (level, until);
    CREATE TABLE latest (
        host TEXT PRIMARY KEY, job TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL
    ) WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One resolution: its table of rows, and how long a chunk and the chunks last."""

    number: int
    rows: str
    packed: str  #: the column of a source with its last row that is in a chunk
    span_s: float
    keep_s: float


FINE = Level(number=0, rows="fine_rows", packed="fine_packed", span_s=600.0, keep_s=86_400.0)
COARSE = Level(
    number=1, rows="coarse_rows", packed="coarse_packed", span_s=86_400.0, keep_s=30 * 86_400.0
)
LEVELS = (FINE, COARSE)


class WrongFormat(Exception):
    """Another version of herd wrote the file."""


def open_file(file: Path, *, create: bool) -> sqlite3.Connection | None:
    """Open the file; None if there is none to read. Only the engine creates it.

    Raises sqlite3.Error or WrongFormat.
    """
    if not file.exists():
        if not create:
            return None
        for name in BESIDES:  # of a file that was deleted: they would be taken for the new one's
            file.with_name(file.name + name).unlink(missing_ok=True)
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_S, isolation_level=None,
        check_same_thread=False,
    )  # fmt: skip
    try:
        prepare_file(connection, file, create=create)
    except (sqlite3.Error, OSError, WrongFormat):
        connection.close()
        raise
    return connection


def prepare_file(connection: sqlite3.Connection, file: Path, *, create: bool) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if create:
        file.chmod(0o600)
        if not found:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # syncs at checkpoints only
        connection.execute(f"PRAGMA max_page_count = {BYTES_MAX // PAGE}")
        connection.execute(f"PRAGMA journal_size_limit = {4 << 20}")
    if create and not found:
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {FORMAT}; COMMIT"
        )
    elif found != FORMAT:
        raise WrongFormat


@contextmanager
def explain_trouble(folder: Path) -> Iterator[None]:
    """Turn errors of the file into sentences. Those of a damaged file are for the caller."""
    try:
        yield
    except sqlite3.Error as error:
        if is_damage(error):
            raise
        raise explained_error(folder, error) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else f"{folder / NAME}: {error.strerror}"
        raise OperationFailed(
            f"samples for the charts are not kept: {what}", hint=FULL if full else ""
        ) from error


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in DAMAGES or str(error).startswith(OTHER_TABLES)


def explained_error(folder: Path, error: sqlite3.Error) -> HerdError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    no_room = code == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR
    if no_room and disk_usage(folder).free < ROOM * 2:
        return OperationFailed("samples for the charts are not kept: the disk is full", hint=FULL)
    if code in BUSY:
        return OperationFailed("the samples for the charts are locked by another process")
    return OperationFailed(f"the samples in {folder / NAME} can't be used ({error})")


def set_samples_aside(file: Path) -> OperationFailed:
    """Move a damaged file away, and return the sentence that says so."""
    aside = file.with_name(ASIDE)
    try:
        file.replace(aside)
        for name in BESIDES:
            file.with_name(file.name + name).unlink(missing_ok=True)
    except OSError as error:
        return OperationFailed(f"{file} is damaged and can't be moved away ({error.strerror})")
    return OperationFailed(
        f"the samples for the charts were damaged; they are in {aside} now, and new ones are kept",
        hint="no job is affected",
    )
