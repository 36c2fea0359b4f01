"""The store in PostgreSQL: a schema per project or world, used by several machines at once.

The row of `store_state` has what SQLite keeps in its file's head: the format, and a number that
counts the writes. Each write begins by counting, which also makes the writes wait for each other,
so that events are seen in the order of their numbers. An engine that leads holds an advisory lock
of its epoch; the server releases it when the engine's connection ends.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from tpuherd.clock import WallClock
from tpuherd.errors import HerdError, OutcomeUnknown
from tpuherd.ports import LeaseHolder
from tpuherd.settings.store_address import StoreAddress
from tpuherd.store import schema
from tpuherd.store.connection import Connection
from tpuherd.store.postgres_errors import explain_server_errors
from tpuherd.store.postgres_words import translate_statement, translate_values

ALIKE_S = 1.0  #: clocks that differ by less than this count as equal
#: Both sides notice within about ten seconds that the other's machine is gone.
KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10, "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2,
    "keepalives_count": 3, "tcp_user_timeout": 10_000, "application_name": "tpuherd",
}  # fmt: skip
SETTINGS = """
    SET search_path TO {schema};
    SET client_min_messages = warning;
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3;
    SET lock_timeout = '10s';
    SET idle_in_transaction_session_timeout = '20s';
"""
#: What PostgreSQL's stores have besides the tables of schema.py.
OWN_TABLES = """
    CREATE TABLE store_state (one BIGINT PRIMARY KEY CHECK (one = 1), format BIGINT NOT NULL,
                              changes BIGINT NOT NULL);
    INSERT INTO store_state VALUES (1, 0, 0)
"""
BEGIN = (
    "BEGIN; UPDATE store_state SET changes = changes + 1"
    " RETURNING format, pg_current_xact_id()::text"
)
HELD = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
    " AND classid = %s::bigint::oid AND objid = %s::bigint::oid"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
Raw = psycopg.Connection[tuple[Any, ...]]


class PostgresServer:
    """A connection to the server, made anew by the next use after it broke."""

    recovery_message = ""

    def __init__(self, address: StoreAddress, name: str) -> None:
        self._address = address
        self._name = name  #: of the schema
        self._own_writes = 0
        self._epoch: int | None = None
        with explain_server_errors(address):
            self._raw = self._connect()

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Read with errors explained; each statement sees what is written by then."""
        with explain_server_errors(self._address):
            raw = self._live_connection()
            try:
                yield PostgresConnection(raw)
            except psycopg.Error:  # the tables of a newer format are no damage
                with suppress(psycopg.Error):
                    schema.refuse_migrated_format(read_format(raw))
                raise

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        with explain_server_errors(self._address):
            raw = self._live_connection()
            try:
                cursor = raw.execute(BEGIN)
                cursor.nextset()
                found, number = cursor.fetchone() or (0, "")
                schema.refuse_migrated_format(found)
                yield PostgresConnection(raw)
                self._commit(raw, number)
                self._own_writes += 1
            finally:
                roll_back(raw)

    def count_changes(self) -> int:
        with self.read_transaction() as connection:
            row = connection.execute("SELECT changes FROM store_state").fetchone()
        return int(row[0]) - self._own_writes

    def check_format(self) -> None:
        with self.read_transaction():
            schema.refuse_newer_format(read_format(self._raw))

    def shared_time(self, connection: Connection, now: float) -> float:
        """The server's time: the clocks of machines differ."""
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        ahead = float(row[0]) - WallClock().now()
        return now if abs(ahead) < ALIKE_S else now + ahead

    def is_dead(self, connection: Connection, holder: LeaseHolder) -> bool:
        return connection.execute(HELD, self._lock_keys(holder.epoch)).fetchone() is None

    def show_life(self, connection: Connection, epoch: int) -> None:
        connection.execute("SELECT pg_advisory_unlock_all()")
        connection.execute("SELECT pg_try_advisory_lock(?::int, ?::int)", self._lock_keys(epoch))
        self._epoch = epoch

    def raise_next_number(self, connection: Connection, number: int) -> None:
        row = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        if (least := max(number, row[0])) > 0:
            connection.execute(
                "SELECT setval(pg_get_serial_sequence('events', 'seq'), ?::bigint)", (least,)
            )

    def close(self) -> None:
        self._raw.close()

    def share_setting(self, name: str, ours: str) -> str:
        """Return what the users of this store share under this name; ours if nobody came first."""
        read = "SELECT document FROM settings WHERE name = ?"
        with self.read_transaction() as connection:
            row = connection.execute(read, (name,)).fetchone()
        if row is None:
            with self.write_transaction() as connection:
                connection.execute(
                    "INSERT INTO settings (name, document) VALUES (?, ?)"
                    " ON CONFLICT (name) DO NOTHING", (name, json.dumps({"id": ours})),
                )  # fmt: skip
                row = connection.execute(read, (name,)).fetchone()
        return str(json.loads(row[0])["id"])

    # ---- how ---------------------------------------------------------------------------------

    def _live_connection(self) -> Raw:
        if self._raw.closed:
            self._raw = self._connect()
        return self._raw

    def _connect(self) -> Raw:
        raw = log_in(self._address, self._name)
        try:
            migrate_tables(raw, self._name)
            if self._epoch is not None:  # taken over or not, only this epoch's lock is ours
                keys = self._lock_keys(self._epoch)
                raw.execute("SELECT pg_try_advisory_lock(%s::int, %s::int)", keys)
        except (psycopg.Error, HerdError):
            raw.close()
            raise
        return raw

    def _lock_keys(self, epoch: int) -> tuple[int, int]:
        return zlib.crc32(self._name.encode()) & 0x7FFFFFFF, epoch & 0x7FFFFFFF

    def _commit(self, raw: Raw, number: str) -> None:
        """Commit. If the answer is lost, ask the server what became of the transaction."""
        try:
            raw.execute("COMMIT")
        except psycopg.OperationalError:
            if not raw.closed:
                raise
            if self._find_outcome(number) != "committed":
                raise

    def _find_outcome(self, number: str) -> str:
        try:
            self._raw = self._connect()
            row = self._raw.execute("SELECT pg_xact_status(%s::xid8)", (number,)).fetchone()
            if row and row[0] in ("committed", "aborted"):
                return str(row[0])
        except (psycopg.Error, HerdError):
            pass
        raise OutcomeUnknown(
            f"the connection to the store in {self._address.title} broke during a write",
            hint="look whether it was recorded (herd events), else repeat the command",
        )


class PostgresConnection:
    """A connection that takes our statements."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        words = translate_statement(sql).encode()
        return self._raw.execute(words, translate_values(values) if values else None)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        batch = [translate_values(row) for row in rows]
        with self._raw.cursor() as cursor:
            cursor.executemany(translate_statement(sql).encode(), batch)


def log_in(address: StoreAddress, name: str) -> Raw:
    """Connect to the server, and choose the schema of this name, which need not exist."""
    login = dict(KEEPALIVE)
    if address.password:
        login["password"] = address.password
    elif address.passfile:
        login["passfile"] = address.passfile
    raw = psycopg.connect(address.url, autocommit=True, **login)
    try:
        raw.execute(SETTINGS.format(schema=quote_name(name)).encode())
    except psycopg.Error:
        raw.close()
        raise
    return raw


def migrate_tables(raw: Raw, name: str, steps: Sequence[str] = schema.STEPS) -> None:
    """Create or migrate the tables; several processes may do so at once."""
    newest = schema.OLDEST + len(steps) - 1
    if (found := read_format(raw)) < newest:
        try:
            raw.execute("BEGIN")
            raw.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"tpuherd {name}",))
            found = read_format(raw)
            if found == 0:
                raw.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_name(name)}".encode())
                raw.execute(OWN_TABLES.encode())
            for step in steps[max(0, found - schema.OLDEST + 1) :]:
                raw.execute(translate_statement(step).encode())
            found = max(found, newest)
            raw.execute("UPDATE store_state SET format = %s", (found,))
            raw.execute("COMMIT")
        finally:
            roll_back(raw)
    schema.refuse_newer_format(found, newest)


def read_format(raw: Raw) -> int:
    """The format of the store; 0 if there is none."""
    row = raw.execute("SELECT to_regclass('store_state') IS NULL").fetchone()
    if row is None or row[0]:
        return 0
    row = raw.execute("SELECT format FROM store_state").fetchone()
    return 0 if row is None else int(row[0])


def roll_back(raw: Raw) -> None:
    """End a transaction that was not committed."""
    with suppress(psycopg.Error):
        if not raw.closed and raw.info.transaction_status != TransactionStatus.IDLE:
            raw.execute("ROLLBACK")


def quote_name(name: str) -> str:
    quoted = name.replace('"', '""')
    return f'"{quoted}"'
