"""The store: one SQLite file a project or world, used by several processes at once.

Every change is one transaction, and on the disk (synced) when the call returns: what is journalled
before an action was journalled. Readers never wait for a writer, nor it for them (WAL).
"""

import json
import os
import socket
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuherd.errors import HerdError, Outdated
from tpuherd.model.slots_and_plan import Event
from tpuherd.model.stored_job import Wish
from tpuherd.ports import Holder
from tpuherd.store import event_table as log
from tpuherd.store import job_table, lease
from tpuherd.store.corruption import MARK, NAME, alone, opened, refuse_marked, told
from tpuherd.store.damaged_file import refuse_wrong_heads
from tpuherd.store.moved_marker import refuse_moved
from tpuherd.store.schema import migrate
from tpuherd.store.secret_files import Secrets
from tpuherd.store.set_aside import set_aside
from tpuherd.store.trouble_files import Troubles

BUSY_S = 10.0  #: so long one waits for another's write
WAL_MAX = 64 << 20  #: what is left of the write-ahead file after a burst
SETTINGS = f"""
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA journal_size_limit = {WAL_MAX};
"""


class Database:
    """ports.Store in a file; belongs to the thread that opened it."""

    def __init__(self, folder: Path, now: float) -> None:
        self.folder = folder
        self._file = folder / NAME
        self.told = ""  #: a damaged store was set aside: the sentence to be said
        self._opened: int | None = None
        self._lock: int | None = None
        self._changes = 0
        with told(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            refuse_moved(folder)
            if (folder / MARK).exists():
                self.told = set_aside(folder, now)
            try:
                self._open()
            except HerdError:
                if not (folder / MARK).exists():
                    raise
                self.told = set_aside(folder, now)
                self._open()
            self._inode = self._file_inode()
        self.secrets = Secrets(folder / "secrets")
        self.troubles = Troubles(folder)

    def version(self) -> int:
        with self._reading() as connection:
            found: tuple[int] = connection.execute("PRAGMA data_version").fetchone()
        return found[0] + self._changes

    def wishes(self) -> Mapping[str, Wish]:
        with self._reading() as connection:
            return job_table.read(connection)

    def put(self, wish: Wish, events: Sequence[Event] = (), *, expected: int | None = None) -> Wish:
        with self._writing() as connection:
            written = job_table.put(connection, wish, expected)
            log.append(connection, events)
        self._changes += 1
        return written

    def adopt(self, new: Sequence[Wish], events: Sequence[Event]) -> None:
        with self._writing() as connection:
            for wish in new:
                job_table.put(connection, wish, expected=0)
            log.append(connection, events)
        self._changes += 1

    def drop(self, job: str, events: Sequence[Event] = ()) -> None:
        with self._writing() as connection:
            job_table.drop(connection, job)
            log.append(connection, events)
        self._changes += 1

    def append(self, events: Sequence[Event], *, epoch: int | None = None) -> int:
        with self._writing() as connection:
            if epoch is not None:
                lease.check(connection, epoch)
            return log.append(connection, events)

    def prune(self, kinds: Collection[str], *, before: float, most: int) -> int:
        with self._writing() as connection:
            return log.prune(connection, kinds, before=before, most=most)

    def events(
        self,
        *,
        after: int = 0,
        job: str | None = None,
        slot: str | None = None,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        chosen = log.chosen(job=job, slot=slot, kinds=kinds)
        with self._reading() as connection:
            if newest and limit is not None:
                after = log.behind_newest(connection, chosen, after=after, limit=limit)
            yield from log.read(connection, chosen, after=after, limit=limit)

    def take(self, holder: Holder, now: float, ttl_s: float) -> int | None:
        with self._writing() as connection:
            if self._living(lease.read(connection), now) is not None:
                return None
            epoch = lease.take(connection, holder, now, ttl_s)
            self._live(epoch)  # nobody sees the lease before we hold the lock
        return epoch

    def renew(self, epoch: int, now: float) -> None:
        with self._writing() as connection:
            lease.renew(connection, epoch, now)

    def release(self, epoch: int) -> None:
        with self._writing() as connection:
            lease.release(connection, epoch)

    def holder(self, now: float) -> Holder | None:
        with self._reading() as connection:
            return self._living(lease.read(connection), now)

    def load_trails(self) -> tuple[int, Any] | None:
        with self._reading() as connection:
            return log.read_history(connection)

    def save_trails(self, seq: int, document: Any) -> None:
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO trails (one, seq, document) VALUES (1, ?, ?)",
                (seq, json.dumps(document, ensure_ascii=False)),
            )

    def states(self) -> Mapping[str, str]:
        with self._reading() as connection:
            rows = connection.execute("SELECT slot, sentence FROM states ORDER BY slot")
            return dict(rows.fetchall())

    def put_states(self, states: Mapping[str, str]) -> None:
        if states == self.states():
            return
        with self._writing() as connection:
            connection.execute("DELETE FROM states")
            connection.executemany("INSERT INTO states VALUES (?, ?)", states.items())

    def close(self) -> None:
        """No more is asked of it. The lease is not given back: that is the engine's to say."""
        self._let_go()
        self._connection.close()
        if self._opened is not None:
            os.close(self._opened)
        self._opened = None

    # ---- how ---------------------------------------------------------------------------------

    def _open(self) -> None:
        with told(self.folder), alone(self.folder):
            refuse_wrong_heads(self.folder)
            held = opened(self.folder)
            try:
                self._connection = connected(self._file)
            except (sqlite3.Error, OSError, HerdError):
                os.close(held)
                raise
        self._opened = held

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Whatever goes wrong is told; nobody reads a file that is to be set aside."""
        with told(self.folder):
            self._check_file()
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on the disk afterwards, or nothing of it."""
        connection = self._connection
        with told(self.folder):
            self._check_file()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _check_file(self) -> None:
        """SQLite goes on with a file that was removed, and nobody would ever see it again."""
        refuse_marked(self.folder)
        if self._file_inode() != self._inode:
            raise Outdated(
                f"the store in {self.folder} was removed while it was in use",
                hint="begin anew: the next engine takes over what is there",
            )

    def _file_inode(self) -> int:
        try:
            return self._file.stat().st_ino
        except FileNotFoundError:
            return 0

    def _living(self, holder: Holder | None, now: float) -> Holder | None:
        """The holder, unless its time is over or it is known to be dead."""
        if holder is None or holder.until <= now:
            return None
        if holder.host == socket.gethostname() and lease.dead(
            lease.sign(self.folder, holder.epoch)
        ):
            return None
        return holder

    def _live(self, epoch: int) -> None:
        self._let_go()
        for old in self.folder.glob("engine-*.lock"):
            old.unlink(missing_ok=True)
        self._lock = lease.lock(lease.sign(self.folder, epoch))

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def connected(file: Path) -> sqlite3.Connection:
    """Open the file, new or old, with our tables in it."""
    connection = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None)
    try:
        file.chmod(0o600)
        connection.executescript(SETTINGS)
        migrate(connection)
    except (sqlite3.Error, OSError, HerdError):
        connection.close()
        raise
    return connection
