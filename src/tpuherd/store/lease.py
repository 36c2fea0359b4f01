"""The lease: only one engine at a time may write; its epoch exposes late writers.

The row says who holds it and until when. The engine also holds a lock as long as it lives, so that
others know at once when it was killed: on a file, or in PostgreSQL. A free lock proves that the
engine is dead; a held lock proves nothing: an engine that oversleeps loses the lease but keeps it.
"""

import fcntl
import os
from pathlib import Path

from tpuherd.errors import InvalidInput, Superseded
from tpuherd.ports import LeaseHolder
from tpuherd.store.connection import Connection

#: The version of this engine as a leader. Raise it when an earlier engine would harm what one of
#: this version has started: the store then refuses the earlier one.
LEADER = 1
COLUMNS = "pid, host, who, epoch, taken_at, until"


def read_lease(connection: Connection) -> LeaseHolder | None:
    """Who took it last."""
    row = connection.execute(f"SELECT {COLUMNS} FROM lease").fetchone()
    if row is None:
        return None
    pid, host, who, epoch, taken_at, until = row
    return LeaseHolder(pid=pid, host=host, who=who, epoch=epoch, taken_at=taken_at, until=until)


def take_lease(connection: Connection, holder: LeaseHolder, now: float, ttl_s: float) -> int:
    """Take it, within a transaction; the new epoch is larger than every earlier one."""
    require_leader(connection)
    before = read_lease(connection)
    epoch = max(int(now * 1000), 1 if before is None else before.epoch + 1)
    connection.execute("DELETE FROM lease")
    connection.execute(
        f"INSERT INTO lease (one, ttl_s, least_leader, {COLUMNS})"
        " VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)",
        (ttl_s, LEADER, holder.pid, holder.host, holder.who, epoch, now, now + ttl_s),
    )
    return epoch


def require_leader(connection: Connection) -> None:
    """Raise InvalidInput if an engine of a later version has led: then none below it may."""
    least = read_least_leader(connection)
    if least > LEADER:
        raise InvalidInput(
            "the jobs of this store were led by an engine of a newer herd, and this one's would"
            f" harm them (it is of version {LEADER}, and {least} is the least that may lead)",
            hint="upgrade: pip install --upgrade tpuherd, or start the engine of the newer one",
        )


def read_least_leader(connection: Connection) -> int:
    """The least version of an engine that may lead: that of the last one; 0 before the first."""
    row = connection.execute("SELECT least_leader FROM lease").fetchone()
    return 0 if row is None else int(row[0])


def renew_lease(connection: Connection, epoch: int, now: float) -> None:
    """Extend it by its ttl."""
    check_lease(connection, epoch)
    connection.execute("UPDATE lease SET until = ? + ttl_s", (now,))


def release_lease(connection: Connection, epoch: int) -> None:
    """Give it back; the row stays, so that the next epoch is larger."""
    connection.execute("UPDATE lease SET until = 0 WHERE epoch = ?", (epoch,))


def check_lease(connection: Connection, epoch: int) -> None:
    """Raise Superseded unless this epoch holds the lease."""
    holder = read_lease(connection)
    if holder is None or holder.epoch != epoch:
        by = "" if holder is None else f" (process {holder.pid} on {holder.host})"
        raise Superseded(f"another engine took over{by}")


def engine_lock_file(folder: Path, epoch: int) -> Path:
    """The file that the engine of this epoch keeps locked while it lives."""
    return folder / f"engine-{epoch}.lock"


def is_lock_free(file: Path) -> bool:
    """Whether the lock is free, so that its former holder on this machine is dead."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False  # unknown
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False  # it lives, or locks don't work here: then the lease expires
    finally:
        os.close(descriptor)
    return True
