"""Keeps two backups of the store's file, made after each change of a job and once a day.

A failing backup hurts no command unless the store is damaged: it is recorded as a problem, which
reading commands show until one succeeds. A killed one leaves a draft that the next one overwrites.
"""

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tpuherd.clock import WallClock
from tpuherd.errors import HerdError, StoreDamaged
from tpuherd.files import file_lock, sync_file
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.trouble import BACKUP
from tpuherd.store import event_table as log
from tpuherd.store import job_table
from tpuherd.store.corruption import NAME, explain_errors, is_damage
from tpuherd.store.packed_events import unpack_rows
from tpuherd.store.schema import (
    MalformedRows,
    corrupt_error,
    migrate_schema,
    raise_next_number,
)
from tpuherd.store.trouble_files import TroubleStore

BACKUPS = (".backup", ".backup-older")  #: the newest one first
NEWEST, OLDER = (f"{NAME}{ending}" for ending in BACKUPS)
DRAFT, LOCK = f"{NAME}.backup.new", "store.backing-up"
HOLD = "hold"  #: the setting {"backup_at"} of a restored store; empty once it is acknowledged
BUSY_S = 10.0
SKIPPED = 1_000_000  #: so many numbers of events are left out: those of lost ones are not reused


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredStore:
    """What the draft of the new store has."""

    made_at: float | None  #: None: there was no sound backup, so it is blank
    jobs: tuple[str, ...]


def back_up(folder: Path) -> None:
    """Make a backup; raise StoreDamaged if the store is."""
    troubles = TroubleStore(folder)
    try:
        with explain_errors(folder), file_lock(folder / LOCK):
            write_backup(folder)
        with suppress(OSError):
            troubles.end_trouble(BACKUP)
    except StoreDamaged:
        raise  # the older backup lacks what was just written
    except HerdError as error:
        with suppress(OSError):
            (folder / DRAFT).unlink(missing_ok=True)
        with suppress(OSError):
            troubles.record_trouble(BACKUP, error.sentence, hint=error.hint, now=WallClock().now())


def write_backup(folder: Path) -> None:
    """Write a copy under another name, then put it in the place of the newest backup."""
    draft = folder / DRAFT
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    store = f"{(folder / NAME).absolute().as_uri()}?mode=rw"  # a removed one is not created
    with closing(sqlite3.connect(store, uri=True, timeout=BUSY_S)) as connection:
        connection.execute("VACUUM INTO ?", (str(draft),))
    sync_file(draft)
    with suppress(FileNotFoundError):
        (folder / NEWEST).replace(folder / OLDER)
    draft.replace(folder / NEWEST)


def restore_backup(folder: Path, draft: Path) -> RestoredStore:
    """Copy the newest sound backup to the draft of a new store; without one, make it blank."""
    for backup in (folder / NEWEST, folder / OLDER):
        try:
            content, made_at = backup.read_bytes(), backup.stat().st_mtime
        except OSError:
            continue
        draft.write_bytes(content)
        try:
            return RestoredStore(made_at=made_at, jobs=prepare_store(draft))
        except sqlite3.Error as error:
            if not is_damage(error):  # a full disk, say: a blank store would lose the jobs
                raise
    draft.unlink(missing_ok=True)
    return RestoredStore(made_at=None, jobs=prepare_store(draft))


def prepare_store(draft: Path) -> tuple[str, ...]:
    """Check the draft, create missing tables and release its lease; return its jobs.

    Raises sqlite3.Error if it is damaged.
    """
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        draft.chmod(0o600)
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise corrupt_error("the backup")
        migrate_schema(connection)
        malformed = MalformedRows()
        jobs = tuple(job_table.read_jobs(connection, malformed))
        for row in connection.execute(f"SELECT {log.COLUMNS} FROM events"):
            log.parse_event_row(row, malformed)  # contents that can't be read are damage, too
        for (content,) in connection.execute("SELECT content FROM packed_events"):
            for row in unpack_rows(content):
                log.parse_event_row(row, malformed)
        raise_next_number(connection, log.last_number(connection) + SKIPPED)
        connection.execute("UPDATE lease SET until = 0")
    return jobs


def record_restoration(draft: Path, event: HistoryEvent, restored: RestoredStore) -> None:
    """Write the event to the draft, and that the engine may not act on a backup yet."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        log.append_events(connection, [event])
        if restored.made_at is not None:
            job_table.put_setting(connection, HOLD, {"backup_at": restored.made_at})
