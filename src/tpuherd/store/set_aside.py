"""Sets a damaged store aside under another name and carries over what can be read of it.

That happens while no other process has the store open: each holds a shared lock while it does. Any
step may be interrupted by kill -9: the mark stays until the last step, and the next process that
opens the store continues where this one stopped.
"""

import json
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from tpuherd.clock import WallClock
from tpuherd.errors import StoreDamaged
from tpuherd.files import atomic_write, try_lock
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.store import event_table as log
from tpuherd.store import job_table
from tpuherd.store.corruption import ASIDE, MARK, NAME, OPENED, explain_errors
from tpuherd.store.damaged_file import ReadableContents, read_damaged_file
from tpuherd.store.packed_events import PACKED, restore_packed
from tpuherd.store.schema import migrate_schema, raise_next_number
from tpuherd.targets import fold_names

SET_ASIDE = "store.set_aside"  #: the event of a store that follows a damaged one
NOTICE = "store.notice"  #: the messages that reading commands show until they are acknowledged
BOOKS = "books"  #: a cache computed from the events, which are others now
LET_GO_S = 10.0  #: how long other processes may take to notice the mark and close the store
LOOK_S = 0.05


def wait_for_sole_use(folder: Path) -> int | None:
    """Wait until we hold the store alone, as every process that sees the mark closes it; returns
    the lock's descriptor, or None if another process has set the store aside meanwhile. Raises
    StoreDamaged if a process does not close it."""
    clock = WallClock()
    end = clock.now() + LET_GO_S
    while (held := try_lock(folder / OPENED)) is None:
        if not (folder / MARK).exists():
            return None
        if clock.now() > end:
            raise StoreDamaged(
                f"the store in {folder} is damaged, and another process is using it",
                hint="stop that process so that herd can repair the store: herd engine stop",
            )
        clock.wait(LOOK_S)
    return held


def set_aside(folder: Path, now: float) -> str:
    """Move a damaged store away and build a new one from what can be read. Returns the message for
    the user; "" if another process did it first. If it is killed, the next process finishes it.
    """
    held = wait_for_sole_use(folder)
    if held is None:
        return ""
    try:
        if not (folder / MARK).exists():
            return ""
        aside = folder / aside_name(folder, now)
        if (folder / NAME).exists() and aside.exists():
            sentence = read_notices(folder).get(aside.name, "")  # all but the last step are done
        else:
            sentence = rebuild_store(folder, aside, now)
        for draft in folder.glob(".*.new"):  # of an atomic_write that was killed
            draft.unlink(missing_ok=True)
        sync_folder(folder)
        (folder / MARK).unlink()
    finally:
        os.close(held)
    return sentence


def aside_name(folder: Path, now: float) -> str:
    """The name under which the damaged store is kept; once chosen, the mark contains it."""
    if name := (folder / MARK).read_text():
        return name
    when = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = free = f"{NAME}.broken-{when}"
    number = 1
    while (folder / free).exists():
        number += 1
        free = f"{name}-{number}"
    atomic_write(folder / MARK, free, durable=True)
    return free


def rebuild_store(folder: Path, aside: Path, now: float) -> str:
    """Rename the damaged files, the database first; then put the new store in place atomically."""
    for ending in ASIDE:
        file, there = folder / f"{NAME}{ending}", Path(f"{aside}{ending}")
        if file.exists() and not there.exists():
            file.replace(there)
    found = read_damaged_file(aside, folder / f"{NAME}.reading")
    draft = folder / f"{NAME}.new"
    for ending in ASIDE:
        Path(f"{draft}{ending}").unlink(missing_ok=True)
    sentence = loss_summary(aside, found)
    facts = {"why": sentence, "file": str(aside), "jobs": [one.job for one in found.jobs],
             "lost_jobs": list(found.lost_jobs),
             "whole": not (found.lost_events or found.blind or found.lost_jobs)}  # fmt: skip
    event = HistoryEvent(at=now, kind=SET_ASIDE, facts=facts)
    write_new_store(draft, found, event)
    notices = json.dumps(read_notices(folder) | {aside.name: sentence})
    atomic_write(folder / NOTICE, notices, durable=True)
    (folder / BOOKS).unlink(missing_ok=True)
    draft.replace(folder / NAME)
    return sentence


def write_new_store(draft: Path, found: ReadableContents, event: HistoryEvent) -> None:
    """Create a store with what was read and an event that says what was lost."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        draft.chmod(0o600)
        migrate_schema(connection)
        connection.execute("BEGIN IMMEDIATE")
        for job in found.jobs:
            job_table.put_job(connection, job, expected=0)
            connection.execute(
                "UPDATE jobs SET revision = ? WHERE job = ?", (job.revision, job.job)
            )
        connection.executemany("INSERT INTO settings VALUES (?, ?)", found.settings)
        restore_packed(connection, found.packed)
        log.restore_events(connection, found.events)
        raise_next_number(connection, max((row[0] for row in found.packed), default=0))
        if found.history is not None:
            raise_next_number(connection, found.history[0])
            connection.execute("INSERT INTO history VALUES (1, ?, ?)", found.history)
        log.append_events(connection, [event])
        connection.execute("COMMIT")


def loss_summary(aside: Path, found: ReadableContents) -> str:
    """The message about what was carried over and what was lost."""
    jobs = fold_names(one.job for one in found.jobs) or "none"
    lost = [f"up to {found.lost_events} events"] if found.lost_events else []
    lost += ["an unknown number of later events"] if found.blind else []
    lost += [f"the jobs {fold_names(found.lost_jobs)}"] if found.lost_jobs else []
    unread = f"; it could not read {' and '.join(lost)}" if lost else ""
    events = len(found.events) + PACKED * len(found.packed)
    return (
        f"the store was damaged; the damaged file is now {aside}. herd carried over what it could"
        f" read (jobs: {jobs}; {events} events){unread}. The engine adds what the cloud"
        " shows"
    )


def read_notices(folder: Path) -> dict[str, str]:
    """The messages that are repeated until acknowledged, by the name of the damaged file."""
    try:
        found = json.loads((folder / NOTICE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return {NOTICE: f"a store was set aside in {folder}"}
    return {str(name): str(sentence) for name, sentence in found.items()}


def acknowledge_notices(folder: Path) -> int:
    """Stop repeating the messages; returns how many there were."""
    many = len(read_notices(folder))
    with explain_errors(folder):
        (folder / NOTICE).unlink(missing_ok=True)
    return many


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that renames in it are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
