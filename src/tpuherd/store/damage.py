"""What can be wrong with the store's file, in sentences; and a damaged one is set aside, not lost.

It is set aside only while no other process has it open: each holds a lock for sharing as long.
"""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import disk_usage

from tpuherd.ports import Broken, HerdError, NotAllowed
from tpuherd.store.lease import lock

NAME = "store.db"
MARK = "store.damaged"  #: somebody met the damage: the next to open sets the file aside
OPENED = "store.opened"  #: locked by all who have it open
OPENING = "store.opening"  #: locked by who opens it
ASIDE = ("", "-wal", "-shm")
DAMAGES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
ROOM = 1 << 16  #: with less than this free a failed write was for want of it
FULL = "nothing is lost that was done; free some space, work goes on by itself"


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Whatever SQLite or the disk says in here is told in a sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise sentence(folder, error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Broken(f"the disk is full: {folder} can't be written", hint=FULL) from error
        raise NotAllowed(f"{folder} can't be used ({error.strerror})") from error


def sentence(folder: Path, error: sqlite3.Error) -> HerdError:
    """The error to raise; a damage is marked."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return Broken(f"the disk is full: {folder} can't be written", hint=FULL)
    if code == sqlite3.SQLITE_IOERR and disk_usage(folder).free < ROOM:
        return Broken(f"the disk is full: {folder} can't be written", hint=FULL)
    if code in READ_ONLY:
        return NotAllowed(
            f"{folder / NAME} can't be written ({error})", hint="see whose it is: ls -l"
        )
    if code in BUSY:
        return Broken(f"another process keeps the store in {folder} busy", hint="try again")
    if code in DAMAGES:
        mark(folder)
        return Broken(
            f"the store in {folder} is damaged ({error})",
            hint="it is set aside as soon as nobody uses it: herd engine stop, then herd adopt",
        )
    return Broken(f"the store in {folder} can't be used ({error})")


def mark(folder: Path) -> None:
    """Remember the damage where it was met."""
    try:
        (folder / MARK).touch(mode=0o600)
    except OSError:
        pass  # who opens it next meets it again


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time makes the file and its tables."""
    descriptor = os.open(folder / OPENING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def opened(folder: Path) -> int:
    """Say that we have it open: a descriptor to be closed at the end."""
    descriptor = os.open(folder / OPENED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def set_aside(folder: Path, now: float) -> str:
    """Move a damaged store away, if nobody uses it; the sentence that must be said."""
    held = lock(folder / OPENED)
    if held is None and not (folder / MARK).exists():
        return ""  # somebody was quicker
    if held is None:
        raise Broken(
            f"the store in {folder} is damaged, and another process uses it",
            hint="end it, so that the store can be set aside: herd engine stop",
        )
    try:
        if not (folder / MARK).exists():
            return ""
        when = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        aside = folder / f"{NAME}.broken-{when}"
        for ending in ASIDE:
            file = folder / f"{NAME}{ending}"
            if file.exists():
                file.replace(f"{aside}{ending}")
        (folder / MARK).unlink(missing_ok=True)
    finally:
        os.close(held)
    return (
        f"the store was damaged and is set aside as {aside}; what it knew of nodes is read"
        " from the cloud again (herd adopt)"
    )
