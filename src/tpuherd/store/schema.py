"""The tables of the store, how an older store becomes a newer one, and which one is too new."""

import sqlite3
from collections.abc import Sequence

from tpuherd.errors import InvalidInput

#: What makes version n of version n - 1. A step that was released is never edited.
STEPS: Sequence[str] = (
    """
    CREATE TABLE wishes (
        job TEXT PRIMARY KEY, goal TEXT NOT NULL, document TEXT NOT NULL, snapshot TEXT NOT NULL,
        made_at REAL NOT NULL, changed_at REAL NOT NULL, revision INTEGER NOT NULL,
        who TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL,
        job TEXT NOT NULL, slot TEXT NOT NULL, facts TEXT NOT NULL
    );
    CREATE INDEX events_of_job ON events (job, seq);
    CREATE INDEX events_of_kind ON events (kind, seq);
    CREATE TABLE lease (
        one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, pid INTEGER NOT NULL,
        host TEXT NOT NULL, who TEXT NOT NULL, taken_at REAL NOT NULL, until REAL NOT NULL,
        ttl_s REAL NOT NULL
    );
    CREATE TABLE trails (
        one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, document TEXT NOT NULL
    );
    CREATE TABLE states (slot TEXT PRIMARY KEY, sentence TEXT NOT NULL) WITHOUT ROWID;
    """,
    "ALTER TABLE wishes ADD COLUMN patient INTEGER NOT NULL DEFAULT 0",
)


TABLES = frozenset(("wishes", "events", "lease", "trails", "states"))


def migrate_schema(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Bring the store to our version; two processes may try it at once."""
    if schema_version(connection) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in steps[schema_version(connection) :]:
                for statement in step.split(";"):
                    connection.execute(statement)
            connection.execute(
                f"PRAGMA user_version = {max(len(steps), schema_version(connection))}"
            )
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise
    if schema_version(connection) == len(STEPS) and (absent := TABLES - table_names(connection)):
        raise corrupt_error(f"a store without {', '.join(sorted(absent))}")
    if schema_version(connection) > len(steps):
        raise InvalidInput(
            f"the store was written by a newer herd (its version is {schema_version(connection)},"
            f" this herd knows {len(steps)})",
            hint="use that herd here too: pip install --upgrade tpuherd",
        )


def table_names(connection: sqlite3.Connection) -> set[str]:
    """The names of the tables there are."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows}


def schema_version(connection: sqlite3.Connection) -> int:
    """Which version the store has; 0 when it is new."""
    found: tuple[int] = connection.execute("PRAGMA user_version").fetchone()
    return found[0]


def corrupt_error(what: str) -> sqlite3.DatabaseError:
    """The error for contents that nobody wrote so."""
    error = sqlite3.DatabaseError(f"{what} makes no sense")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
