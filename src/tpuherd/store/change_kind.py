"""Moves a project's jobs from the file on this machine into PostgreSQL, or back.

A marker refuses the store they leave before they are copied, so that no two engines lead them. The
copy is one transaction. To finish an interrupted move, repeat it: the marker's token tells whether
the copy had arrived.
"""

import os
import secrets
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tpuherd.errors import HerdError, InvalidInput, OperationFailed, Superseded
from tpuherd.files import make_private_folder
from tpuherd.ports import LeaseHolder
from tpuherd.settings.project_access import OWNER, SHARED_LOGIN, ProjectScope, get_owner_id
from tpuherd.settings.project_settings import adopt_owner
from tpuherd.settings.store_address import StoreAddress
from tpuherd.store import moved_marker
from tpuherd.store.connection import Connection, Driver
from tpuherd.store.corruption import NAME, explain_errors
from tpuherd.store.database import Database
from tpuherd.store.job_table import put_setting, read_setting
from tpuherd.store.open_database import MOVED, connect_server
from tpuherd.store.postgres import PostgresServer
from tpuherd.store.schema import TABLES, MalformedRows, migrate_schema, raise_next_number

ARRIVED = "arrived"  #: the setting with the token of the last move into PostgreSQL
BATCH = 1_000
DRAFT = "move.db"
LEASE_S = 600.0  #: no engine starts while the marker is written


def move_to_server(scope: ProjectScope, address: StoreAddress, now: float, *, login: str) -> int:
    """Move the jobs of the file on this machine into PostgreSQL; return how many there are.

    `login`: that on hosts, as which they run.
    """
    folder = scope.store_folder
    marker = moved_marker.read_moved_marker(folder)
    if marker is not None and marker.get("to") != address.title:
        moved_marker.refuse_moved(folder)
    with closing(connect_server(address, folder.name)) as server:
        if marker is None:
            marker = leave_file(folder, address, now)
        try:
            shared = {OWNER: get_owner_id(scope.folders.config), SHARED_LOGIN: login}
            fill_server(server, folder, marker["token"], shared)
        except Superseded:
            raise  # it may have arrived: only repeating tells
        except HerdError:
            moved_marker.remove_marker(folder)
            raise
    return len(moved_marker.read_stored_jobs(folder))


def leave_file(folder: Path, address: StoreAddress, now: float) -> dict[str, str]:
    """Refuse the file from now on; return the marker."""
    if not (folder / NAME).exists():
        raise InvalidInput("there are no jobs of this project on this machine")
    token = secrets.token_hex(8)
    with closing(Database(folder, now)) as store:
        epoch = hold_alone(store, now)
        moved_marker.leave_marker(folder, to=address.title, token=token)
        store.release_lease(epoch)
    return {"to": address.title, "token": token}


def hold_alone(store: Database, now: float) -> int:
    """Take the lease, so that no engine runs."""
    holder = LeaseHolder(pid=os.getpid(), host=socket.gethostname(), who="herd engine store move")
    epoch = store.take_lease(holder, now, LEASE_S)
    if epoch is None:
        raise OperationFailed("an engine is using the store", hint="stop it: herd engine stop")
    return epoch


def fill_server(
    server: PostgresServer, folder: Path, token: str, shared: Mapping[str, str]
) -> None:
    """Copy the file into the server's tables, unless this move had arrived there.

    `shared`: what their nodes' names and hosts have, as those who join must.
    """
    with (
        explain_errors(folder),
        moved_marker.open_bare_file(folder / NAME) as source,
        server.write_transaction() as target,
    ):
        arrived = read_setting(target, ARRIVED, MalformedRows())
        if arrived is not None and arrived.get("token") == token:
            return
        left = read_setting(target, MOVED, MalformedRows())
        if left is None and target.execute("SELECT 1 FROM events LIMIT 1").fetchone():
            raise InvalidInput(
                "that database already has jobs of this project, and two stores can't be merged",
                hint="run herd down --all there or here, then move",
            )
        copy_tables(source, target, server)
        target.execute("DELETE FROM settings WHERE name = ?", (MOVED,))
        put_setting(target, ARRIVED, {"token": token})
        for name, text in shared.items():
            put_setting(target, name, {"id": text})


def move_to_file(scope: ProjectScope, address: StoreAddress, now: float) -> int:
    """Move the jobs from PostgreSQL into a file on this machine; return how many there are."""
    folder, here = scope.store_folder, socket.gethostname()
    with closing(connect_server(address, folder.name)) as server:
        store = Database(folder, now, server)
        moved = store.load_setting(MOVED)
        if moved is not None and moved.get("to") != here:
            raise InvalidInput(f"the jobs in {address.title} were moved to {moved.get('to')}")
        token = str(moved["token"]) if moved else secrets.token_hex(8)
        if moved_marker.refuse_second_store(folder, token):
            return len(moved_marker.read_stored_jobs(folder))
        if moved is None:
            epoch = hold_alone(store, now)
            store.put_setting(MOVED, {"to": here, "token": token})
            store.release_lease(epoch)
        jobs = len(store.stored_jobs())
        owner = server.share_setting(OWNER, get_owner_id(scope.folders.config))
        if owner != get_owner_id(scope.folders.config):
            adopt_owner(scope.folders.config, world=scope.world, project=scope.project, owner=owner)
        fill_file(server, folder, token)
    return jobs


def fill_file(server: PostgresServer, folder: Path, token: str) -> None:
    """Copy the server's tables into a new file, and put it in its place."""
    draft = folder / DRAFT
    with explain_errors(folder):
        make_private_folder(folder)
        draft.unlink(missing_ok=True)
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            draft.chmod(0o600)
            migrate_schema(target)
            target.execute("BEGIN IMMEDIATE")
            with server.read_transaction() as source:
                copy_tables(source, target, None)
            words = "DELETE FROM settings WHERE name IN (?, ?, ?, ?)"
            target.execute(words, (MOVED, ARRIVED, OWNER, SHARED_LOGIN))
            target.execute("COMMIT")
    moved_marker.install_copy(folder, draft, token)


def copy_tables(source: Connection, target: Connection, server: Driver | None) -> None:
    """Copy all rows into tables that are emptied first, within a transaction; nobody leads then."""
    last = 0
    for table in sorted(TABLES):
        rows = source.execute(f"SELECT * FROM {table}")
        columns = [about[0] for about in rows.description or ()]
        words = f"({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        target.execute(f"DELETE FROM {table}")
        everything = rows.fetchall()
        for start in range(0, len(everything), BATCH):
            target.executemany(f"INSERT INTO {table} {words}", everything[start : start + BATCH])
        if table in ("events", "history"):
            last = max([last, *(row[columns.index("seq")] for row in everything)])
        if table == "packed_events":
            last = max([last, *(row[columns.index("last")] for row in everything)])
    target.execute("UPDATE lease SET until = 0")
    if server is None:
        raise_next_number(target, last)
    else:
        server.raise_next_number(target, last)
