"""Explains the errors of PostgreSQL: what is wrong, and what to do next."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotReached,
    OperationFailed,
)
from tpuherd.settings.store_address import StoreAddress

BACK = (
    "nothing is lost; herd continues by itself when the server answers again (if it can't start,"
    " its log says why: a full disk?)"
)
FULL = "nothing is lost; free some space there and herd continues by itself"
TEXT_MAX = 300
NO_SPACE = "No space left on device"  #: of a login, for which libpq has no code
#: Errors of a server or connection that is gone, or not there yet.
GONE = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow,
        errors.ConnectionException, errors.TooManyConnections)  # fmt: skip
LOGIN = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
#: What libpq says of a refused login or a missing database, for which it has no code.
LOGIN_WORDS = ("password authentication failed", "no password supplied", "pg_hba.conf",
               "authentication failed", 'role "')  # fmt: skip
#: What libpq says of an option of the URL, and of a server without the TLS that was asked for.
BAD_OPTION = re.compile(r"invalid (\w+ value|URI|connection option|port number|integer value)")
TLS_WORDS = ("does not support SSL", "certificate", "no encryption")
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
    if isinstance(error, errors.DiskFull) or NO_SPACE in said:
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
    if error.sqlstate is None and BAD_OPTION.search(said):
        return InvalidInput(f"the URL of {store} has an option that is not valid ({said})",
                            hint="see the manual of libpq")  # fmt: skip
    if error.sqlstate is None and any(word in said for word in TLS_WORDS):
        return NotAllowed(f"{store} can't be reached with the TLS that its URL asks for ({said})",
                          hint="check sslmode and sslrootcert in the URL")  # fmt: skip
    if isinstance(error, GONE) or error.sqlstate is None:
        return NotReached(f"{store} can't be reached ({said})", hint=BACK)
    return OperationFailed(f"{store} can't be used ({said})")


def error_text(address: StoreAddress, error: psycopg.Error) -> str:
    """The error's last line, which says most, without libpq's explanations and the password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and line[0] != "\t"]
    said = lines[0] if error.sqlstate and lines else lines[-1] if lines else type(error).__name__
    if address.password:
        said = said.replace(address.password, "…")
    return said[:TEXT_MAX]
