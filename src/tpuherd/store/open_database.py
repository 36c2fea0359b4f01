"""Opens the store of a project: in PostgreSQL if its address says so, else the file here."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuherd.errors import InvalidInput, NotAllowed
from tpuherd.files import atomic_write, make_private_folder
from tpuherd.settings.project_access import (
    OWNER,
    SHARED_LOGIN,
    ProjectAccess,
    ProjectScope,
    get_owner_id,
)
from tpuherd.settings.store_address import StoreAddress
from tpuherd.store.corruption import NAME, explain_errors
from tpuherd.store.database import Database
from tpuherd.store.moved_marker import has_jobs, read_moved_marker

MOVED = "moved"  #: the setting {"to", "token"} of a store in PostgreSQL that moved away


if TYPE_CHECKING:
    from tpuherd.store.postgres import PostgresServer


def open_database(scope: ProjectScope, now: float) -> Database:
    """Open the store, and create it if there is none. Use it only in the thread that opened it."""
    address, folder = scope.database, scope.store_folder
    if address is None:
        return Database(folder, now)
    refuse_jobs_here(folder, address)
    server = connect_server(address, folder.name)
    found = Database(folder, now, server)
    try:
        refuse_moved_away(found.load_setting(MOVED), address)
        share_text(folder / OWNER, server.share_setting(OWNER, get_owner_id(scope.folders.config)))
        if isinstance(scope, ProjectAccess):
            share_login(folder, found, server, scope.login)
    except BaseException:
        found.close()
        raise
    return found


def refuse_moved_away(moved: Mapping[str, Any] | None, address: StoreAddress) -> None:
    if moved is not None:
        raise InvalidInput(
            f"the jobs in {address.title} were moved to {moved.get('to')}",
            hint="use them there: without HERD_STORE, and without a store in the context",
        )


def connect_server(address: StoreAddress, name: str) -> "PostgresServer":
    try:
        from tpuherd.store.postgres import PostgresServer
    except ImportError as error:
        raise InvalidInput(
            f"the store is in a {address.title}, which needs the package psycopg",
            hint="pip install 'tpuherd[lab]'",
        ) from error
    return PostgresServer(address, name)


def refuse_jobs_here(folder: Path, address: StoreAddress) -> None:
    """Raise InvalidInput if a store on this machine has jobs too: two engines would lead them."""
    if (folder / NAME).exists() and read_moved_marker(folder) is None and has_jobs(folder):
        raise InvalidInput(
            f"this machine's own store has jobs of this project, and so may the {address.title}",
            hint="take them there, without HERD_STORE or the context's store:"
            " herd engine store move URL",
        )


def share_login(folder: Path, store: Database, server: "PostgresServer", login: str) -> None:
    """Agree on the login on hosts: agents and files there are those of a login."""
    try:
        shared = server.share_setting(SHARED_LOGIN, login)
    except NotAllowed:  # a role that may only read
        known = store.load_setting(SHARED_LOGIN)
        shared = login if known is None else str(known.get("id"))
    share_text(folder / SHARED_LOGIN, shared)


def refuse_other_login(store: Database, place: ProjectAccess) -> None:
    """Raise InvalidInput if an engine of this login would not find the attempts that run."""
    shared = store.load_setting(SHARED_LOGIN)
    if place.database is not None and shared is not None and shared.get("id") != place.login:
        raise InvalidInput(
            f"the jobs in {place.database.title} run as {shared.get('id')} on their hosts, but"
            f" this context logs in as {place.login}",
            hint=f"herd context add NAME --login {shared.get('id')}",
        )


def share_text(file: Path, text: str) -> None:
    """Keep what the users of a store share where those find it who do not open the store."""
    with explain_errors(file.parent):
        make_private_folder(file.parent)
        if not file.exists() or file.read_text() != text:
            atomic_write(file, text)
