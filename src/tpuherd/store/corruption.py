"""Explains errors of the store's file, and marks a damaged file for the next process."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage

from tpuherd.errors import HerdError, NotAllowed, OperationFailed, StoreDamaged

NAME = "store.db"
MARK = (
    "store.damaged"  #: a process found damage: the next one to open the store sets the file aside
)
OPENED = "store.opened"  #: locked (shared) by every process that has the store open
OPENING = "store.opening"  #: locked by the process that is opening the store
ASIDE = ("", "-wal", "-shm")
DAMAGES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
#: Our statements never change, so these messages mean that the file is not as we created it.
OTHER_TABLES = ("no such table", "no such column", "table ", "index ", "Could not decode")
ROOM = 1 << 16  #: with less free space than this, a failed write means a full disk
REPEAT = "repeat the command: it sets the file aside and carries over what can be read"
FULL = "nothing is lost; free some space and herd continues by itself"


@contextmanager
def explain_errors(folder: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the disk into ours, with a sentence and a hint."""
    try:
        yield
    except sqlite3.Error as error:
        raise explained_error(folder, error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OperationFailed(
                f"the disk is full: {folder} can't be written", hint=FULL
            ) from error
        raise NotAllowed(f"{folder} can't be used ({error.strerror})") from error


def explained_error(folder: Path, error: sqlite3.Error) -> HerdError:
    """The error to raise for it; damage is also marked for other processes."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return OperationFailed(f"the disk is full: {folder} can't be written", hint=FULL)
    if code == sqlite3.SQLITE_IOERR and disk_usage(folder).free < ROOM:
        return OperationFailed(f"the disk is full: {folder} can't be written", hint=FULL)
    if code in READ_ONLY:
        return NotAllowed(
            f"{folder / NAME} can't be written ({error})", hint="check its owner with ls -l"
        )
    if code in BUSY:
        return OperationFailed(
            f"the store in {folder} is locked by another process", hint="try again"
        )
    if code in DAMAGES or str(error).startswith(OTHER_TABLES):
        mark_damaged(folder)
        return StoreDamaged(f"the store in {folder} is damaged ({error})", hint=REPEAT)
    return OperationFailed(f"the store in {folder} can't be used ({error})")


def refuse_marked(folder: Path) -> None:
    """Raise StoreDamaged if a process found damage, so that all close the file."""
    if (folder / MARK).exists():
        raise StoreDamaged(f"the store in {folder} is damaged", hint=REPEAT)


def mark_damaged(folder: Path) -> None:
    """Leave the mark that makes every process close the file."""
    try:
        (folder / MARK).touch(mode=0o600)
    except OSError:
        pass  # the next process finds the damage again


def share_open_lock(folder: Path) -> int:
    """Mark the store as open by us; returns a descriptor to close at the end."""
    descriptor = os.open(folder / OPENED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
