"""What the tables need from a database: one language of SQL, spoken by SQLite and PostgreSQL.

Statements have `?` for values and what both know (ON CONFLICT, not OR REPLACE). The few words that
only SQLite knows are put into PostgreSQL's by postgres.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tpuherd.ports import LeaseHolder


class Rows(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int: ...

    @property
    def description(self) -> Sequence[Any] | None: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection that the tables are read and written through."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...


class Driver(Protocol):
    """An open database. Its errors are ours, with a sentence and a hint."""

    recovery_message: str  #: the message if a damaged store was set aside on opening
    is_shared: bool  #: whether other accounts write to it

    def read_transaction(self) -> AbstractContextManager[Connection]: ...

    def write_transaction(self) -> AbstractContextManager[Connection]:
        """One transaction, alone: afterwards either all of it is on disk or nothing."""
        ...

    def count_changes(self) -> int:
        """Return a number that changes with every write of another process."""
        ...

    def check_format(self) -> None:
        """Raise if the store was moved away or migrated by a newer herd since it was opened."""
        ...

    def shared_time(self, connection: Connection, now: float) -> float:
        """Return the time by the clock that all engines of this store go by."""
        ...

    def is_dead(self, connection: Connection, holder: LeaseHolder) -> bool:
        """Whether the process that took this lease is known to be dead."""
        ...

    def end_expired_leader(self) -> None:
        """End what a leader whose lease is over would still keep locked."""
        ...

    def show_life(self, connection: Connection, epoch: int) -> None:
        """Hold a lock of this epoch for as long as this process lives, within a transaction."""
        ...

    def raise_next_number(self, connection: Connection, number: int) -> None:
        """Make the next event's number larger than this one, within a transaction."""
        ...

    def back_up(self) -> None:
        """Make a backup if that is not left to a server; a failure is recorded as a problem."""
        ...

    def close(self) -> None: ...
