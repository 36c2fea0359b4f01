"""Explains the errors of PostgreSQL: what is wrong, and what to do next."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from tpuherd.errors import HerdError, NotAllowed, NotFound, NotReached, OperationFailed
from tpuherd.settings.store_address import StoreAddress

BACK = "nothing is lost; herd continues by itself when the server answers again"
FULL = "nothing is lost; free some space there and herd continues by itself"
TEXT_MAX = 300
#: Errors of a server or connection that is gone, or not there yet.
GONE = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow,
        errors.ConnectionException, errors.TooManyConnections)  # fmt: skip
LOGIN = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
#: What libpq says of a refused login or a missing database, for which it has no code.
LOGIN_WORDS = ("password authentication failed", "no password supplied", "pg_hba.conf",
               "authentication failed", 'role "')  # fmt: skip
BUSY = (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected)
OTHER_TABLES = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName,
                errors.DatatypeMismatch)  # fmt: skip


@contextmanager
def explain_server_errors(address: StoreAddress) -> Iterator[None]:
    """Turn errors of PostgreSQL into ours, with a sentence and a hint."""
    try:
        yield
    except psycopg.Error as error:
        raise explained_error(address, error) from error
    except sqlite3.DatabaseError as error:  # schema.corrupt_error
        raise OperationFailed(
            f"the store in {address.title} has contents that herd never writes ({error})",
            hint="restore the database from a backup",
        ) from error


def explained_error(address: StoreAddress, error: psycopg.Error) -> HerdError:
    """The error to raise for it."""
    said, store = error_text(address, error), f"the store in {address.title}"
    if isinstance(error, errors.DiskFull):
        return OperationFailed(f"the disk of {store} is full", hint=FULL)
    if isinstance(error, LOGIN) or any(word in said for word in LOGIN_WORDS):
        return NotAllowed(f"{store} refuses the login ({said})", hint="check the URL and ~/.pgpass")
    if isinstance(error, errors.InvalidCatalogName) or (
        "does not exist" in said and (error.sqlstate is None)
    ):
        return NotFound(f"{store} does not exist", hint=f"create it: createdb {address.database}")
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return NotAllowed(f"{store} can't be used so ({said})", hint="ask its owner to GRANT it")
    if isinstance(error, BUSY):
        return OperationFailed(f"{store} is locked by another process", hint="try again")
    if isinstance(error, OTHER_TABLES):
        return OperationFailed(
            f"{store} has other tables than herd makes ({said})",
            hint="restore the database from a backup",
        )
    if isinstance(error, GONE) or error.sqlstate is None:
        return NotReached(f"{store} can't be reached ({said})", hint=BACK)
    return OperationFailed(f"{store} can't be used ({said})")


def error_text(address: StoreAddress, error: psycopg.Error) -> str:
    """The error's last line, which says most, without the password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if error.sqlstate and lines else lines[-1] if lines else type(error).__name__
    if address.password:
        said = said.replace(address.password, "…")
    return said[:TEXT_MAX]
