"""What can be wrong with the store's file, in sentences, and the mark of who meets damage."""

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
MARK = "store.damaged"  #: somebody met the damage: the next to open sets the file aside
OPENED = "store.opened"  #: locked by all who have it open
OPENING = "store.opening"  #: locked by who opens it
ASIDE = ("", "-wal", "-shm")
DAMAGES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
#: Our statements are always the same: where they don't fit, the file is not as we made it.
OTHER_TABLES = ("no such table", "no such column", "table ", "index ", "Could not decode")
ROOM = 1 << 16  #: with less than this free a failed write was for want of it
REPEAT = "repeat the command: it sets the file aside and carries over what can be read"
FULL = "nothing is lost that was done; free some space, work goes on by itself"


@contextmanager
def explain_errors(folder: Path) -> Iterator[None]:
    """Whatever SQLite or the disk says in here is told in a sentence."""
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
    """The error to raise; a damage is marked."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return OperationFailed(f"the disk is full: {folder} can't be written", hint=FULL)
    if code == sqlite3.SQLITE_IOERR and disk_usage(folder).free < ROOM:
        return OperationFailed(f"the disk is full: {folder} can't be written", hint=FULL)
    if code in READ_ONLY:
        return NotAllowed(
            f"{folder / NAME} can't be written ({error})", hint="see whose it is: ls -l"
        )
    if code in BUSY:
        return OperationFailed(
            f"another process keeps the store in {folder} busy", hint="try again"
        )
    if code in DAMAGES or str(error).startswith(OTHER_TABLES):
        mark_damaged(folder)
        return StoreDamaged(f"the store in {folder} is damaged ({error})", hint=REPEAT)
    return OperationFailed(f"the store in {folder} can't be used ({error})")


def refuse_marked(folder: Path) -> None:
    """Damaged where somebody met damage: who has the file open lets go of it."""
    if (folder / MARK).exists():
        raise StoreDamaged(f"the store in {folder} is damaged", hint=REPEAT)


def mark_damaged(folder: Path) -> None:
    """Remember the damage where it was met."""
    try:
        (folder / MARK).touch(mode=0o600)
    except OSError:
        pass  # who opens it next meets it again


@contextmanager
def hold_opening_lock(folder: Path) -> Iterator[None]:
    """One process at a time makes the file and its tables."""
    descriptor = os.open(folder / OPENING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def share_open_lock(folder: Path) -> int:
    """Say that we have it open: a descriptor to be closed at the end."""
    descriptor = os.open(folder / OPENED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
