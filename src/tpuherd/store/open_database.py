"""Opens the store of a project: in PostgreSQL if its address says so, else the file here."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuherd.errors import InvalidInput
from tpuherd.files import atomic_write
from tpuherd.settings.project_access import OWNER, ProjectScope, get_owner_id
from tpuherd.settings.store_address import StoreAddress
from tpuherd.store.corruption import NAME, explain_errors
from tpuherd.store.database import Database
from tpuherd.store.moved_marker import has_jobs, read_moved_marker

MOVED = "moved"  #: the setting {"to", "token"} of a store in PostgreSQL that moved away


if TYPE_CHECKING:
    from tpuherd.store.postgres_server import PostgresServer


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
        share_owner_id(folder, server.share_owner_id(get_owner_id(scope.folders.config)))
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
        from tpuherd.store.postgres_server import PostgresServer
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
            hint="take them there, without HERD_STORE or the context's store: herd store move URL",
        )


def share_owner_id(folder: Path, owner: str) -> None:
    """Keep the store's owner id where those who only look at the cloud find it."""
    file = folder / OWNER
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.exists() or file.read_text() != owner:
            atomic_write(file, owner)
