"""Sets a damaged store aside under another name and restores its backup in its place.

Without a sound backup, the new store is blank and the engine rebuilds it from the cloud.

That happens while no other process has the store open: each holds a shared lock while it does. Any
step may be interrupted by kill -9: the mark stays until the last step, and the next process that
opens the store continues where this one stopped.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpuherd.clock import WallClock
from tpuherd.errors import StoreDamaged
from tpuherd.files import atomic_write, sync_file, try_lock
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.ports import Store
from tpuherd.store.backup import HOLD, RestoredStore, record_restoration, restore_backup
from tpuherd.store.corruption import ASIDE, MARK, NAME, OPENED, explain_errors
from tpuherd.targets import fold_names

SET_ASIDE = "store.set_aside"  #: the event of a store that follows a damaged one
HELD = (
    "nothing is requested, deleted or restarted until you type herd engine acknowledge, because"
    " the store was restored from a backup"
)
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
    """Move a damaged store away and restore its backup. Returns the message for the user; "" if
    another process did it first. If it is killed, the next process finishes it.
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
        sync_file(folder)
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
    draft = folder / f"{NAME}.new"
    for ending in (*ASIDE, "-journal"):
        Path(f"{draft}{ending}").unlink(missing_ok=True)
    restored = restore_backup(folder, draft)
    sentence = describe_loss(aside, restored)
    facts: dict[str, Any] = {"why": sentence, "file": str(aside), "jobs": list(restored.jobs)}
    if restored.made_at is not None:
        facts["backup_at"] = restored.made_at
    record_restoration(draft, HistoryEvent(at=now, kind=SET_ASIDE, facts=facts), restored)
    notices = json.dumps(read_notices(folder) | {aside.name: sentence})
    atomic_write(folder / NOTICE, notices, durable=True)
    (folder / BOOKS).unlink(missing_ok=True)
    sync_file(draft)
    draft.replace(folder / NAME)
    return sentence


def describe_loss(aside: Path, restored: RestoredStore) -> str:
    """The message: what happened, from when the backup is, and what to type."""
    moved = f"the store was damaged; the damaged file is now {aside}. "
    if restored.made_at is None:
        return (
            f"{moved}There was no sound backup: the engine takes over the jobs that have nodes or"
            " requests in the cloud, and other jobs have to be submitted again. To dismiss this"
            " notice: herd engine acknowledge"
        )
    when = datetime.fromtimestamp(restored.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"{moved}Its backup of {when} was restored (jobs: {fold_names(restored.jobs) or 'none'})."
        " Running attempts continue, but nothing is requested, deleted or restarted: check herd ls,"
        " take down the jobs that had ended or been deleted since, then type"
        " herd engine acknowledge"
    )


def awaits_acknowledgement(store: Store) -> bool:
    """Whether a backup was restored, and the user has not said yet that its jobs are right."""
    return bool(store.load_setting(HOLD))


def read_notices(folder: Path) -> dict[str, str]:
    """The messages that are repeated until acknowledged, by the name of the damaged file."""
    try:
        found = json.loads((folder / NOTICE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return {NOTICE: f"a store was set aside in {folder}"}
    return {str(name): str(sentence) for name, sentence in found.items()}


def acknowledge_restoration(store: Store, folder: Path) -> bool:
    """Let the engine act on a restored store, and stop repeating the messages; return whether there
    was anything to acknowledge."""
    is_held, notices = awaits_acknowledgement(store), read_notices(folder)
    if is_held:
        store.put_setting(HOLD, {})
    with explain_errors(folder):
        (folder / NOTICE).unlink(missing_ok=True)
    return is_held or bool(notices)
