"""Explains errors of the store's file, finds damage and marks it for the next process."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from struct import iter_unpack, unpack

from tpuherd.errors import HerdError, NotAllowed, OperationFailed, StoreDamaged
from tpuherd.files import try_lock
from tpuherd.store.schema import corrupt_error

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
PAGE = 4096  #: SQLite's default page size
HEADER = 100
MAGIC = b"SQLite format 3\0"
WAL_HEADER = 32
WAL_MAGIC = 0x377F0682  #: the lowest bit: whether checksums are big-endian
ROOM = 1 << 16  #: with less free space than this, a failed write means a full disk
REPEAT = "repeat the command: it sets the file aside and restores the backup"
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
    if is_damage(error):
        mark_damaged(folder)
        return StoreDamaged(f"the store in {folder} is damaged ({error})", hint=REPEAT)
    return OperationFailed(f"the store in {folder} can't be used ({error})")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether it says that the file is not as herd wrote it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in DAMAGES or str(error).startswith(OTHER_TABLES)


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


def refuse_wrong_headers(folder: Path) -> None:
    """Raise the error of a damaged store, as SQLite would overwrite a file whose header it can't
    read.

    Only while no process has the store open: closing a file would drop SQLite's locks on it.
    """
    held = try_lock(folder / OPENED)
    if held is None:
        return
    try:
        file = folder / NAME
        head, wal_head = read_head(file), read_head(file.with_name(f"{NAME}-wal"))
    finally:
        os.close(held)
    if head is not None and head[: len(MAGIC)] != MAGIC:
        begun = wal_head or any(folder.glob("engine*"))  # else its creation was interrupted
        if head or begun:
            raise corrupt_error("the beginning of the file")
    if head and not wal_head and len(head) == HEADER and file_size(head) > file.stat().st_size:
        raise corrupt_error("the end of the file")
    if wal_head and not is_wal_header(wal_head[:WAL_HEADER]):
        raise corrupt_error("the beginning of the write-ahead file")


def read_head(file: Path) -> bytes | None:
    """Its first HEADER bytes; None if the file does not exist."""
    try:
        with file.open("rb") as stream:
            return stream.read(HEADER)
    except FileNotFoundError:
        return None


def file_size(head: bytes) -> int:
    """The file size according to a valid header; 0 if the header gives none."""
    pages = int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0
    return pages * PAGE


def is_wal_header(head: bytes) -> bool:
    """Whether a write-ahead file begins so: its last eight bytes are a checksum of the others."""
    if len(head) < WAL_HEADER:
        return False
    magic, _, page = unpack(">3I", head[:12])
    order = ">" if magic & 1 else "<"
    first = second = 0
    for one, two in iter_unpack(f"{order}2I", head[:24]):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    sums: tuple[int, ...] = unpack(">2I", head[24:])
    return magic & ~1 == WAL_MAGIC and page == PAGE and sums == (first, second)
