"""The store as one SQLite file in a folder, used by several processes of one machine at once.

Every write is synced to disk when the call returns, so that what we record before an action
survives a crash. Readers and the writer never wait for each other (WAL).
"""

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuherd import files
from tpuherd.errors import HerdError, Superseded
from tpuherd.files import file_lock, make_private_folder
from tpuherd.ports import LeaseHolder
from tpuherd.store.backup import back_up
from tpuherd.store.connection import Connection
from tpuherd.store.corruption import (
    MARK,
    NAME,
    OPENING,
    explain_errors,
    refuse_marked,
    refuse_wrong_headers,
    share_open_lock,
)
from tpuherd.store.lease import engine_lock_file, is_lock_free
from tpuherd.store.moved_marker import refuse_moved
from tpuherd.store.schema import migrate_schema, raise_next_number, refuse_migrated, refuse_newer
from tpuherd.store.set_aside import set_aside

BUSY_S = 10.0  #: how long to wait for another process's write
WAL_MAX = 64 << 20  #: the size to which the write-ahead log is truncated
SETTINGS = f"""
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA journal_size_limit = {WAL_MAX};
"""


class SqliteFile:
    """The open file. Use it only in the thread that opened it."""

    is_shared = False

    def __init__(self, folder: Path, now: float) -> None:
        self._folder = folder
        self._file = folder / NAME
        self.recovery_message = ""  #: the message if a damaged store was set aside on opening
        self._opened: int | None = None
        self._lock: int | None = None
        with explain_errors(folder):
            make_private_folder(folder)
            refuse_moved(folder)
            if (folder / MARK).exists():
                self.recovery_message = set_aside(folder, now)
            try:
                self._open_file()
            except HerdError:
                if not (folder / MARK).exists():
                    raise
                self.recovery_message = set_aside(folder, now)
                self._open_file()
            self._inode = self._file_inode()

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Read with errors explained; refuses a file that is to be set aside."""
        with explain_errors(self._folder):
            self._check_file()
            try:
                yield self._connection
            except sqlite3.Error:  # the tables of a newer format are no damage
                refuse_migrated(self._connection)
                raise

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with explain_errors(self._folder):
            self._check_file()
            connection.execute("BEGIN IMMEDIATE")
            try:
                refuse_migrated(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def count_changes(self) -> int:
        with self.read_transaction() as connection:
            found: tuple[int] = connection.execute("PRAGMA data_version").fetchone()
        return found[0]

    def check_format(self) -> None:
        refuse_moved(self._folder)
        with self.read_transaction() as connection:
            refuse_newer(connection)

    def shared_time(self, connection: Connection, now: float) -> float:
        return now  # all engines of a file run on its machine

    def is_dead(self, connection: Connection, holder: LeaseHolder) -> bool:
        return holder.host == socket.gethostname() and is_lock_free(
            engine_lock_file(self._folder, holder.epoch)
        )

    def end_expired_leader(self) -> None:
        """Nothing: only its process can release the lock of a file."""

    def show_life(self, connection: Connection, epoch: int) -> None:
        self._release_engine_lock()
        for old in self._folder.glob("engine-*.lock"):
            old.unlink(missing_ok=True)
        self._lock = files.try_lock(engine_lock_file(self._folder, epoch))

    def raise_next_number(self, connection: Connection, number: int) -> None:
        raise_next_number(connection, number)

    def back_up(self) -> None:
        back_up(self._folder)

    def close(self) -> None:
        self._release_engine_lock()
        self._connection.close()
        if self._opened is not None:
            os.close(self._opened)
        self._opened = None

    # ---- how ---------------------------------------------------------------------------------

    def _open_file(self) -> None:
        with explain_errors(self._folder), file_lock(self._folder / OPENING):
            refuse_wrong_headers(self._folder)
            held = share_open_lock(self._folder)
            try:
                self._connection = connect_file(self._file)
            except (sqlite3.Error, OSError, HerdError):
                os.close(held)
                raise
        self._opened = held

    def _check_file(self) -> None:
        """Refuse a file that was removed: SQLite would write on, but the data would be lost."""
        refuse_marked(self._folder)
        if self._file_inode() != self._inode:
            raise Superseded(
                f"the store in {self._folder} was removed while it was in use",
                hint="repeat the command: the next engine recovers its jobs from the cloud",
            )

    def _file_inode(self) -> int:
        try:
            return self._file.stat().st_ino
        except FileNotFoundError:
            return 0

    def _release_engine_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def connect_file(file: Path) -> sqlite3.Connection:
    """Open the file and create or migrate its tables."""
    connection = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None)
    try:
        file.chmod(0o600)
        connection.executescript(SETTINGS)
        migrate_schema(connection)
    except (sqlite3.Error, OSError, HerdError):
        connection.close()
        raise
    return connection
