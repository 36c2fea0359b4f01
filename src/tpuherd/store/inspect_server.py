"""Reads a store in PostgreSQL as inspect_store.py reads a file: it migrates and makes nothing."""

from contextlib import closing
from functools import partial

from tpuherd.errors import HerdError
from tpuherd.settings.store_address import StoreAddress
from tpuherd.store.inspect_store import StoreContents, read_contents
from tpuherd.store.postgres import (
    PostgresConnection,
    explain_server_errors,
    log_in,
    read_format,
)


def inspect_server(
    address: StoreAddress, name: str, *, most: int, job: str | None = None
) -> StoreContents:
    """Read the store of this name with its newest events, of a job or of all."""
    found = StoreContents()
    try:
        with explain_server_errors(address), closing(log_in(address, name)) as raw:
            raw.execute("SET default_transaction_read_only = on")
            if read_format(raw):
                connection = PostgresConnection(raw)
                read_contents(connection, partial(read_format, raw), found, most=most, job=job)
    except HerdError as error:
        found.problems.append(error.sentence)
    return found
