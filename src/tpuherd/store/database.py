"""The store: one SQLite file per project or world, used by several processes at once.

Every change is one transaction and is synced to disk when the call returns, so that what we record
before an action survives a crash. Readers and the writer never wait for each other (WAL).
"""

import os
import socket
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuherd import files
from tpuherd.errors import HerdError, Superseded
from tpuherd.files import file_lock
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.store import event_table as log
from tpuherd.store import job_table, lease, packed_events
from tpuherd.store.corruption import (
    MARK,
    NAME,
    OPENING,
    explain_errors,
    refuse_marked,
    share_open_lock,
)
from tpuherd.store.damaged_file import refuse_wrong_heads
from tpuherd.store.moved_marker import refuse_moved
from tpuherd.store.schema import migrate_schema, refuse_migrated, refuse_newer
from tpuherd.store.secret_files import SecretFiles
from tpuherd.store.set_aside import set_aside
from tpuherd.store.trouble_files import TroubleStore

BUSY_S = 10.0  #: how long to wait for another process's write
WAL_MAX = 64 << 20  #: the size to which the write-ahead log is truncated
SETTINGS = f"""
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA journal_size_limit = {WAL_MAX};
"""


class Database:
    """ports.Store in a file. Use it only in the thread that opened it."""

    def __init__(self, folder: Path, now: float) -> None:
        self.folder = folder
        self._file = folder / NAME
        self.recovery_message = ""  #: the message if a damaged store was set aside on opening
        self._opened: int | None = None
        self._lock: int | None = None
        self._changes = 0
        with explain_errors(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
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
        self.secrets = SecretFiles(folder / "secrets")
        self.troubles = TroubleStore(folder)

    def change_counter(self) -> int:
        with self._read_transaction() as connection:
            found: tuple[int] = connection.execute("PRAGMA data_version").fetchone()
        return found[0] + self._changes

    def stored_jobs(self) -> Mapping[str, StoredJob]:
        with self._read_transaction() as connection:
            return job_table.read_jobs(connection)

    def job_revisions(self) -> Mapping[str, tuple[int, float]]:
        """What differs for each job once it was changed, or removed and submitted again."""
        with self._read_transaction() as connection:
            return job_table.read_revisions(connection)

    def find_job(self, job: str) -> StoredJob | None:
        with self._read_transaction() as connection:
            return job_table.read_jobs(connection, job).get(job)

    def check_format(self) -> None:
        """Raise if the store was moved away or migrated by a newer herd since it was opened."""
        refuse_moved(self.folder)
        with self._read_transaction() as connection:
            refuse_newer(connection)

    def put_job(
        self,
        stored_job: StoredJob,
        events: Sequence[HistoryEvent] = (),
        *,
        expected: int | None = None,
    ) -> StoredJob:
        with self._write_transaction() as connection:
            written = job_table.put_job(connection, stored_job, expected)
            log.append_events(connection, events)
        self._changes += 1
        return written

    def add_jobs(self, new: Sequence[StoredJob], events: Sequence[HistoryEvent]) -> None:
        with self._write_transaction() as connection:
            for stored_job in new:
                job_table.put_job(connection, stored_job, expected=0)
            log.append_events(connection, events)
        self._changes += 1

    def remove_job(self, job: str, events: Sequence[HistoryEvent] = ()) -> None:
        with self._write_transaction() as connection:
            job_table.remove_job(connection, job)
            log.append_events(connection, events)
        self._changes += 1

    def load_setting(self, name: str) -> Mapping[str, Any] | None:
        with self._read_transaction() as connection:
            return job_table.read_setting(connection, name)

    def put_setting(
        self, name: str, document: Mapping[str, Any], events: Sequence[HistoryEvent] = ()
    ) -> None:
        with self._write_transaction() as connection:
            job_table.put_setting(connection, name, document)
            log.append_events(connection, events)
        self._changes += 1

    def append_events(self, events: Sequence[HistoryEvent], *, epoch: int | None = None) -> int:
        with self._write_transaction() as connection:
            if epoch is not None:
                lease.check_lease(connection, epoch)
            return log.append_events(connection, events)

    def prune_events(self, kinds: Collection[str], *, before: float, most: int) -> int:
        with self._write_transaction() as connection:
            return log.prune_events(connection, kinds, before=before, most=most)

    def pack_events(self, *, before: float, keep: int) -> int:
        with self._write_transaction() as connection:
            return packed_events.pack_oldest(connection, before=before, keep=keep)

    def read_events(
        self,
        *,
        after: int = 0,
        job: str | None = None,
        slot: str | None = None,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> Iterator[tuple[int, HistoryEvent]]:
        chosen = log.event_condition(job=job, slot=slot, kinds=kinds)
        with self._read_transaction() as connection:
            if newest and limit is not None:
                after = log.number_before_newest(connection, chosen, after=after, limit=limit)
            yield from log.read_events(connection, chosen, after=after, limit=limit)

    def events_before(
        self, before: int, *, job: str | None, slot: str | None, limit: int
    ) -> list[tuple[int, HistoryEvent]]:
        """The last events before this number, in order."""
        chosen = log.event_condition(job=job, slot=slot, kinds=None, before=before)
        with self._read_transaction() as connection:
            after = log.number_before_newest(connection, chosen, after=0, limit=limit)
            return list(log.read_events(connection, chosen, after=after, limit=limit))

    def latest_event_time(self) -> float:
        """Time of the last events; a later engine never records an earlier time."""
        with self._read_transaction() as connection:
            return log.latest_time(connection)

    def take_lease(self, holder: LeaseHolder, now: float, ttl_s: float) -> int | None:
        with self._write_transaction() as connection:
            if self._living_holder(lease.read_lease(connection), now) is not None:
                return None
            epoch = lease.take_lease(connection, holder, now, ttl_s)
            self._hold_engine_lock(
                epoch
            )  # before the commit, so that no process sees the lease without the lock
        return epoch

    def renew_lease(self, epoch: int, now: float) -> None:
        with self._write_transaction() as connection:
            lease.renew_lease(connection, epoch, now)

    def release_lease(self, epoch: int) -> None:
        with self._write_transaction() as connection:
            lease.release_lease(connection, epoch)

    def lease_holder(self, now: float) -> LeaseHolder | None:
        with self._read_transaction() as connection:
            return self._living_holder(lease.read_lease(connection), now)

    def load_history(self) -> tuple[int, bytes] | None:
        with self._read_transaction() as connection:
            return log.read_history(connection)

    def save_history(self, seq: int, content: bytes) -> None:
        with self._write_transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO history (one, seq, document) VALUES (1, ?, ?)",
                (seq, content),
            )

    def slot_messages(self) -> Mapping[str, str]:
        with self._read_transaction() as connection:
            rows = connection.execute("SELECT slot, sentence FROM states ORDER BY slot")
            return dict(rows.fetchall())

    def put_slot_messages(self, states: Mapping[str, str]) -> None:
        known = self.slot_messages()
        gone = [(slot,) for slot in known if slot not in states]
        new = [item for item in states.items() if known.get(item[0]) != item[1]]
        if not gone and not new:
            return
        with self._write_transaction() as connection:
            connection.executemany("DELETE FROM states WHERE slot = ?", gone)
            connection.executemany("INSERT OR REPLACE INTO states VALUES (?, ?)", new)

    def close(self) -> None:
        """Close the file. This does not release the lease: the engine does that itself."""
        self._release_engine_lock()
        self._connection.close()
        if self._opened is not None:
            os.close(self._opened)
        self._opened = None

    # ---- how ---------------------------------------------------------------------------------

    def _open_file(self) -> None:
        with explain_errors(self.folder), file_lock(self.folder / OPENING):
            refuse_wrong_heads(self.folder)
            held = share_open_lock(self.folder)
            try:
                self._connection = connect_file(self._file)
            except (sqlite3.Error, OSError, HerdError):
                os.close(held)
                raise
        self._opened = held

    @contextmanager
    def _read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Read with errors explained; refuses a file that is to be set aside."""
        with explain_errors(self.folder):
            self._check_file()
            try:
                yield self._connection
            except sqlite3.Error:  # the tables of a newer format are no damage
                refuse_migrated(self._connection)
                raise

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction: afterwards either all of it is on disk or nothing."""
        connection = self._connection
        with explain_errors(self.folder):
            self._check_file()
            connection.execute("BEGIN IMMEDIATE")
            try:
                refuse_migrated(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _check_file(self) -> None:
        """Refuse a file that was removed: SQLite would write on, but the data would be lost."""
        refuse_marked(self.folder)
        if self._file_inode() != self._inode:
            raise Superseded(
                f"the store in {self.folder} was removed while it was in use",
                hint="repeat the command: the next engine recovers its jobs from the cloud",
            )

    def _file_inode(self) -> int:
        try:
            return self._file.stat().st_ino
        except FileNotFoundError:
            return 0

    def _living_holder(self, holder: LeaseHolder | None, now: float) -> LeaseHolder | None:
        """The holder, unless its lease has expired or its process is known to be dead."""
        if holder is None or holder.until <= now:
            return None
        if holder.host == socket.gethostname() and lease.is_lock_free(
            lease.engine_lock_file(self.folder, holder.epoch)
        ):
            return None
        return holder

    def _hold_engine_lock(self, epoch: int) -> None:
        self._release_engine_lock()
        for old in self.folder.glob("engine-*.lock"):
            old.unlink(missing_ok=True)
        self._lock = files.try_lock(lease.engine_lock_file(self.folder, epoch))

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
