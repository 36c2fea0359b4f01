"""The disk under the engine's store: any statement may fail, as SQLite does on a bad disk."""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.simulated.engine_ports import EngineLife
from tpuherd.store.corruption import NAME

Fault = Callable[[sqlite3.Connection, Path, int], sqlite3.Error]


class FaultyConnection:
    """A connection of SQLite that asks before each statement whether it may succeed."""

    def __init__(
        self, inner: sqlite3.Connection, life: EngineLife, before: Callable[[Any, str], None]
    ) -> None:
        self.inner = inner
        self.life = life
        self.before = before

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self.count_statement(statement)
        return self.inner.execute(statement, *values)

    def executemany(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self.count_statement(statement)
        return self.inner.executemany(statement, *values)

    def count_statement(self, statement: str) -> None:
        """A killed engine has no more effect."""
        if not self.life.dead:
            self.before(self.inner, statement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def make_error(kind: type[sqlite3.Error], code: int, sentence: str) -> sqlite3.Error:
    """As SQLite raises it."""
    error = kind(sentence)
    error.sqlite_errorcode = code
    return error


def fail_input(connection: sqlite3.Connection, folder: Path, number: int) -> sqlite3.Error:
    """EIO: nothing is read or written. SQLite rolls back what it was at."""
    undo(connection)
    return make_error(sqlite3.OperationalError, sqlite3.SQLITE_IOERR, "disk I/O error")


def fill_disk(connection: sqlite3.Connection, folder: Path, number: int) -> sqlite3.Error:
    """There is no room for it; the transaction stays open, as it may."""
    sentence = "database or disk is full"
    return make_error(sqlite3.OperationalError, sqlite3.SQLITE_FULL, sentence)


def tear_page(connection: sqlite3.Connection, folder: Path, number: int) -> sqlite3.Error:
    """Half of a page is not what was written, and the statement meets it: each in turn."""
    undo(connection)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    file = folder / NAME
    with file.open("r+b") as stream:
        page = number % (file.stat().st_size // size)
        stream.seek(page * size + size // 2)
        stream.write(b"\xa5" * (size // 2))
    sentence = "database disk image is malformed"
    return make_error(sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT, sentence)


def undo(connection: sqlite3.Connection) -> None:
    """What was not committed is not there."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


DISK_FAULTS: Mapping[str, Fault] = {"eio": fail_input, "full": fill_disk, "torn": tear_page}
