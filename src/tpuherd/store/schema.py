"""The tables of the store, and which formats of it this herd reads."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tpuherd.errors import InvalidInput, Superseded
from tpuherd.model.trouble import STORE, TroubleRecord
from tpuherd.store.connection import Connection

#: The format of the first of the steps below; older ones, with other words, are refused.
OLDEST = 3
#: Step n makes format OLDEST + n of the one before. A released step is never edited.
STEPS: Sequence[str] = (
    """
    CREATE TABLE jobs (
        job TEXT PRIMARY KEY, goal TEXT NOT NULL, document TEXT NOT NULL, snapshot TEXT NOT NULL,
        made_at REAL NOT NULL, changed_at REAL NOT NULL, revision INTEGER NOT NULL,
        who TEXT NOT NULL, patient INTEGER NOT NULL DEFAULT 0
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
    CREATE TABLE history (
        one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, document TEXT NOT NULL
    );
    CREATE TABLE states (slot TEXT PRIMARY KEY, sentence TEXT NOT NULL) WITHOUT ROWID;
    """,
    # The document is MessagePack instead of JSON; the engine folds the events anew.
    "DROP TABLE history; CREATE TABLE history (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " seq INTEGER NOT NULL, document BLOB NOT NULL)",
    # Old events, many in one row.
    "CREATE TABLE packed_events (last INTEGER PRIMARY KEY, first INTEGER NOT NULL,"
    " jobs TEXT NOT NULL, kinds TEXT NOT NULL, content BLOB NOT NULL)",
    # Whose each job is, and what all users of a store agree on: their shares.
    "ALTER TABLE jobs ADD COLUMN owned_by TEXT NOT NULL DEFAULT '';"
    " CREATE TABLE settings (name TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID",
    # The least version of an engine that may lead.
    "ALTER TABLE lease ADD COLUMN least_leader INTEGER NOT NULL DEFAULT 0",
)
FORMAT = OLDEST + len(STEPS) - 1  #: of the stores that this herd writes
LISTED_MAX = 5  #: malformed rows that a sentence names
TIME_MAX = 1e11  #: the year 5138: what is later was written by no herd


TABLES = frozenset(("jobs", "events", "lease", "history", "states", "packed_events", "settings"))


def migrate_schema(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Migrate the store to our format; two processes may do so at once."""
    newest = OLDEST + len(steps) - 1
    if 0 < schema_version(connection) < OLDEST:
        raise outdated_error(connection)
    if schema_version(connection) < newest:
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = max(0, schema_version(connection) - OLDEST + 1)
            for step in steps[done:]:
                for statement in step.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {max(newest, schema_version(connection))}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise
    if schema_version(connection) == FORMAT and (absent := TABLES - table_names(connection)):
        raise corrupt_error(f"the list of tables ({', '.join(sorted(absent))} missing)")
    refuse_newer(connection, newest)


def refuse_newer(connection: sqlite3.Connection, newest: int = FORMAT) -> None:
    """Raise InvalidInput if the store is of a format that only a newer herd reads."""
    refuse_newer_format(schema_version(connection), newest)


def refuse_newer_format(found: int, newest: int = FORMAT) -> None:
    if found > newest:
        raise InvalidInput(
            f"the store was written by a newer herd (its format is {found},"
            f" this herd reads {newest})",
            hint="upgrade: pip install --upgrade tpuherd",
        )


def refuse_migrated(connection: sqlite3.Connection) -> None:
    """Raise Superseded if a newer herd has migrated the store since we opened it: our statements
    no longer fit its tables."""
    with suppress(sqlite3.Error):  # then the caller's error tells more
        refuse_migrated_format(schema_version(connection))


def refuse_migrated_format(found: int) -> None:
    if found > FORMAT:
        raise Superseded(
            "a newer herd has migrated the store: this one does not use it any longer",
            hint="repeat the command; if it is refused: pip install --upgrade tpuherd",
        )


def outdated_error(connection: sqlite3.Connection) -> InvalidInput:
    """The error for a store whose events use the names of an older herd."""
    ((_, _, file),) = connection.execute("PRAGMA database_list").fetchall()
    return InvalidInput(
        f"the store {file} was written by an older herd, whose format this herd cannot read",
        hint=f"move it away (mv {file} {file}.old), then take the running nodes over:"
        " herd engine adopt",
    )


def table_names(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows}


def schema_version(connection: sqlite3.Connection) -> int:
    """The format of the store; 0 for a new store."""
    found: tuple[int] = connection.execute("PRAGMA user_version").fetchone()
    return found[0]


def corrupt_error(what: str) -> sqlite3.DatabaseError:
    """The error for contents that herd never writes."""
    error = sqlite3.DatabaseError(f"{what} is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


@dataclass(kw_only=True, slots=True)
class MalformedRows:
    """Rows with contents that herd never writes, found by reading.

    A row that can't be read at all is damage of a file, which its backup replaces. In a database
    that others write to it concerns its own job only, as does a row in which a value is wrong.
    """

    shared: bool = False
    now: float = 0.0
    found: dict[str, str] = field(default_factory=dict)  #: what is wrong, and what becomes of it

    def add(self, what: str, effect: str, *, damage: bool = False) -> None:
        if damage and not self.shared:
            raise corrupt_error(what)
        if len(self.found) < LISTED_MAX:
            self.found[what] = effect

    def list_troubles(self) -> list[TroubleRecord]:
        if not self.found:
            return []
        listed = "; ".join(f"{what}: {effect}" for what, effect in self.found.items())
        sentence = f"rows have contents that herd never writes ({listed})"
        return [TroubleRecord(source=STORE, sentence=sentence, since=self.now, at=self.now)]


def decode_row(text: Any) -> dict[str, Any] | None:
    """Return the JSON object in a row; None if it is none."""
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < TIME_MAX


def raise_next_number(connection: Connection, number: int) -> None:
    """Make the next event's number larger than this one, within a transaction."""
    connection.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'events', 0"
        " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events')"
    )
    connection.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'events'", (number,)
    )
