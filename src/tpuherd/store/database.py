"""The store: jobs, events and the lease, in a SQLite file or in PostgreSQL.

Every change is one transaction and is on disk when the call returns. Once this process leads, each
of its writes checks in its own transaction that it still does.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuherd.errors import OperationFailed
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.store import event_table as log
from tpuherd.store import job_table, lease, packed_events
from tpuherd.store.connection import Connection, Driver
from tpuherd.store.schema import MalformedRows
from tpuherd.store.secret_files import SecretFiles
from tpuherd.store.sqlite_file import SqliteFile
from tpuherd.store.trouble_files import TroubleStore


class Database:
    """ports.Store. Use it only in the thread that opened it."""

    def __init__(self, folder: Path, now: float, driver: Driver | None = None) -> None:
        self.folder = folder  #: what is kept in files on this machine
        self._driver = SqliteFile(folder, now) if driver is None else driver
        self.recovery_message = self._driver.recovery_message
        self._changes = 0
        self._epoch: int | None = None  #: of the lease that this process took
        self.secrets = SecretFiles(folder / "secrets")
        self.malformed = MalformedRows(shared=self._driver.is_shared, now=now)
        self.troubles = TroubleStore(folder, self.malformed.list_troubles)

    def change_counter(self) -> int:
        return self._driver.count_changes() + self._changes

    def stored_jobs(self) -> Mapping[str, StoredJob]:
        with self._driver.read_transaction() as connection:
            return job_table.read_jobs(connection, self.malformed)

    def job_revisions(self) -> Mapping[str, tuple[int, float]]:
        """What differs for each job once it was changed, or removed and submitted again."""
        with self._driver.read_transaction() as connection:
            return job_table.read_revisions(connection)

    def find_job(self, job: str) -> StoredJob | None:
        with self._driver.read_transaction() as connection:
            return job_table.read_jobs(connection, self.malformed, job).get(job)

    def check_format(self) -> None:
        """Raise if the store was moved away or migrated by a newer herd since it was opened."""
        self._driver.check_format()

    def put_job(
        self,
        stored_job: StoredJob,
        events: Sequence[HistoryEvent] = (),
        *,
        expected: int | None = None,
    ) -> StoredJob:
        with self._write() as connection:
            written = job_table.put_job(connection, stored_job, expected)
            log.append_events(connection, events)
        self._note_change()
        return written

    def add_jobs(self, new: Sequence[StoredJob], events: Sequence[HistoryEvent]) -> None:
        with self._write() as connection:
            for stored_job in new:
                job_table.put_job(connection, stored_job, expected=0)
            log.append_events(connection, events)
        self._note_change()

    def remove_job(self, job: str, events: Sequence[HistoryEvent] = ()) -> None:
        with self._write() as connection:
            job_table.remove_job(connection, job)
            log.append_events(connection, events)
        self._note_change()

    def load_setting(self, name: str) -> Mapping[str, Any] | None:
        with self._driver.read_transaction() as connection:
            return job_table.read_setting(connection, name, self.malformed)

    def put_setting(
        self, name: str, document: Mapping[str, Any], events: Sequence[HistoryEvent] = ()
    ) -> None:
        with self._write() as connection:
            job_table.put_setting(connection, name, document)
            log.append_events(connection, events)
        self._note_change()

    def change_setting(
        self,
        name: str,
        change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
        events: Sequence[HistoryEvent],
    ) -> None:
        """Write what `change` makes of it: nobody else writes in between."""
        with self._write() as connection:
            new = change(job_table.read_setting(connection, name, self.malformed))
            job_table.put_setting(connection, name, new)
            log.append_events(connection, events)
        self._note_change()

    def append_events(
        self,
        events: Sequence[HistoryEvent],
        *,
        epoch: int | None = None,
        unchanged_since: int | None = None,
    ) -> int:
        with self._write() as connection:
            if epoch is not None:
                lease.check_lease(connection, epoch)
            if unchanged_since is not None and log.has_change_since(connection, unchanged_since):
                return 0
            return log.append_events(connection, events)

    def prune_events(self, kinds: Collection[str], *, before: float, most: int) -> int:
        with self._write() as connection:
            return log.prune_events(connection, kinds, before=before, most=most)

    def pack_events(self, *, before: float, keep: int) -> int:
        with self._write() as connection:
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
        with self._driver.read_transaction() as connection:
            if newest and limit is not None:
                after = log.number_before_newest(connection, chosen, after=after, limit=limit)
            yield from log.read_events(connection, chosen, self.malformed, after=after, limit=limit)

    def events_before(
        self, before: int, *, job: str | None, slot: str | None, limit: int
    ) -> list[tuple[int, HistoryEvent]]:
        """The last events before this number, in order."""
        chosen = log.event_condition(job=job, slot=slot, kinds=None, before=before)
        with self._driver.read_transaction() as connection:
            after = log.number_before_newest(connection, chosen, after=0, limit=limit)
            return list(
                log.read_events(connection, chosen, self.malformed, after=after, limit=limit)
            )

    def latest_event_time(self) -> float:
        """Time of the last events; a later engine never records an earlier time."""
        with self._driver.read_transaction() as connection:
            return log.latest_time(connection)

    def require_leader(self) -> None:
        """Raise InvalidInput if the engine of this herd is too old to lead."""
        with self._driver.read_transaction() as connection:
            lease.require_leader(connection)

    def take_lease(self, holder: LeaseHolder, now: float, ttl_s: float) -> int | None:
        self._epoch = None
        self._driver.end_expired_leader()
        with self._driver.write_transaction() as connection:
            now = self._driver.shared_time(connection, now)
            if self._living_holder(connection, now) is not None:
                return None
            epoch = lease.take_lease(connection, holder, now, ttl_s)
            # before the commit, so that no process sees the lease without the lock
            self._driver.show_life(connection, epoch)
        self._epoch = epoch
        return epoch

    def renew_lease(self, epoch: int, now: float) -> None:
        with self._write() as connection:
            lease.renew_lease(connection, epoch, self._driver.shared_time(connection, now))

    def release_lease(self, epoch: int) -> None:
        with self._driver.write_transaction() as connection:
            lease.release_lease(connection, epoch)
        self._epoch = None

    def lease_holder(self, now: float) -> LeaseHolder | None:
        with self._driver.read_transaction() as connection:
            return self._living_holder(connection, self._driver.shared_time(connection, now))

    def load_history(self) -> tuple[int, bytes] | None:
        with self._driver.read_transaction() as connection:
            return log.read_history(connection)

    def save_history(self, seq: int, content: bytes) -> None:
        with self._write() as connection:
            log.save_history(connection, seq, content)

    def slot_messages(self) -> Mapping[str, str]:
        with self._driver.read_transaction() as connection:
            rows = connection.execute("SELECT slot, sentence FROM states ORDER BY slot")
            return dict(rows.fetchall())

    def put_slot_messages(self, states: Mapping[str, str]) -> None:
        known = self.slot_messages()
        gone = [(slot,) for slot in known if slot not in states]
        new = [item for item in states.items() if known.get(item[0]) != item[1]]
        if not gone and not new:
            return
        with self._write() as connection:
            connection.executemany("DELETE FROM states WHERE slot = ?", gone)
            connection.executemany(
                "INSERT INTO states (slot, sentence) VALUES (?, ?) ON CONFLICT (slot)"
                " DO UPDATE SET sentence = excluded.sentence",
                new,
            )

    def back_up(self) -> None:
        """Make a backup, as after each change of a job; not of a store on a server.

        Raises StoreDamaged; another failure is recorded as a problem.
        """
        self._driver.back_up()

    def close(self) -> None:
        """Close it. This does not release the lease: the engine does that itself."""
        self._driver.close()

    def _note_change(self) -> None:
        self._changes += 1
        self._driver.back_up()

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One transaction, refused if another engine has taken over from this one."""
        try:
            with self._driver.write_transaction() as connection:
                if self._epoch is not None:
                    lease.check_lease(connection, self._epoch)
                yield connection
        except OperationFailed:  # locked, maybe by the engine that has taken over, which hangs
            if self._epoch is not None:
                with self._driver.read_transaction() as connection:
                    lease.check_lease(connection, self._epoch)
            raise

    def _living_holder(self, connection: Connection, now: float) -> LeaseHolder | None:
        """The holder, unless its lease has expired or its process is known to be dead."""
        holder = lease.read_lease(connection)
        if holder is None or holder.until <= now or self._driver.is_dead(connection, holder):
            return None
        return holder
