"""Reads a store that may be damaged, full or another version's, and changes nothing.

Unlike Database it does not migrate, mark or set aside. `problems` says what can't be read.
"""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store import event_table as log
from tpuherd.store import job_table, lease
from tpuherd.store.connection import Connection
from tpuherd.store.corruption import ASIDE, MARK, NAME
from tpuherd.store.schema import TABLES, schema_version

BUSY_S = 2.0
WAL = "-wal"


@dataclass(kw_only=True, slots=True)
class StoreContents:
    """What could be read."""

    format: int | None = None
    files: dict[str, int] = field(default_factory=dict)  #: bytes by name
    rows: dict[str, int] = field(default_factory=dict)  #: by table
    jobs: Mapping[str, StoredJob] = field(default_factory=dict)
    events: list[tuple[int, HistoryEvent]] = field(default_factory=list)  #: the newest
    messages: Mapping[str, str] = field(default_factory=dict)  #: by slot
    holder: Any = None  #: of the lease
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether everything could be read, and no process has found damage."""
        return not self.problems


def inspect_store(folder: Path, *, most: int, job: str | None = None) -> StoreContents:
    """Read a store with its newest events, of a job or of all."""
    found = StoreContents()
    names = [f"{NAME}{ending}" for ending in ASIDE]
    others = [one.name for one in folder.glob(f"{NAME}.*") if one.is_file()]
    for name in (*names, *sorted(others)):
        if (folder / name).exists():
            found.files[name] = (folder / name).stat().st_size
    if (folder / MARK).exists():
        found.problems.append("a process has marked the store as damaged")
    if NAME not in found.files:
        return found
    try:
        with closing(open_read_only(folder / NAME)) as connection:
            read = partial(schema_version, connection)
            read_contents(connection, read, found, most=most, job=job)
    except (sqlite3.Error, OSError) as error:
        found.problems.append(f"{NAME} can't be opened: {error}")
    return found


def open_read_only(file: Path) -> sqlite3.Connection:
    """Open it without a right to write.

    Without a write-ahead log no process has it open. SQLite is told so, or it would make one.
    """
    in_use = file.with_name(f"{file.name}{WAL}").exists()
    mode = "mode=ro" if in_use else "immutable=1"
    connection = sqlite3.connect(f"{file.as_uri()}?{mode}", uri=True, timeout=BUSY_S)
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def read_contents(
    connection: Connection,
    read_format: Callable[[], int],
    found: StoreContents,
    *,
    most: int,
    job: str | None,
) -> None:
    """Read table by table, so that damage in one hides no other."""

    def try_to(what: str, read: Callable[[], Any], default: Any) -> Any:
        try:
            return read()
        except Exception as error:
            if not is_database_error(error):
                raise
            found.problems.append(f"{what}: {error}")
            return default

    found.format = try_to("format", read_format, None)
    for table in sorted(TABLES):
        found.rows[table] = try_to(table, partial(count_rows, connection, table), -1)
    found.jobs = try_to("jobs", lambda: job_table.read_jobs(connection), {})
    found.messages = try_to("states", lambda: read_messages(connection), {})
    found.holder = try_to("lease", lambda: lease.read_lease(connection), None)
    try_to("events", lambda: read_newest_events(connection, found.events, most, job), None)


def is_database_error(error: Exception) -> bool:
    """Whether it is one of SQLite, or of psycopg, which need not be installed."""
    return isinstance(error, sqlite3.Error) or type(error).__module__.startswith("psycopg")


def count_rows(connection: Connection, table: str) -> int:
    found: tuple[int] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return found[0]


def read_messages(connection: Connection) -> Mapping[str, str]:
    return dict(connection.execute("SELECT slot, sentence FROM states ORDER BY slot").fetchall())


def read_newest_events(
    connection: Connection,
    into: list[tuple[int, HistoryEvent]],
    most: int,
    job: str | None,
) -> None:
    """Append events until one can't be read."""
    chosen = log.event_condition(job=job, slot=None, kinds=None)
    after = log.number_before_newest(connection, chosen, after=0, limit=most)
    for entry in log.read_events(connection, chosen, after=after, limit=most):
        into.append(entry)
