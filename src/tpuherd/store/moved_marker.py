"""The marker of a store that was moved away, so that the old copy refuses to open."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tpuherd.errors import InvalidInput
from tpuherd.files import atomic_write, make_private_folder
from tpuherd.model.stored_job import StoredJob
from tpuherd.store import job_table
from tpuherd.store.backup import BACKUPS, back_up
from tpuherd.store.corruption import ASIDE, NAME, explain_errors
from tpuherd.store.schema import MalformedRows

MARKER_FILE = "moved.json"  #: {"to", "token"}: where the store went, and the id of that move
ARRIVED = "arrived"  #: the token of the last move that arrived here
SERVER = "PostgreSQL database "  #: how the name of a store there begins
HERE = (
    "use them there (HERD_STORE=URL), or take them back: HERD_STORE=URL herd engine store move here"
)
THERE = "use them there: herd context add NAME --via {to}"


def read_moved_marker(folder: Path) -> Mapping[str, str] | None:
    """The marker's content; None if the store is here."""
    try:
        found: Mapping[str, str] = json.loads((folder / MARKER_FILE).read_bytes())
    except (FileNotFoundError, PermissionError):
        return None  # if we may not read the folder, the database raises the error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{folder / MARKER_FILE} can't be read ({error})") from error
    return found


def refuse_moved(folder: Path) -> None:
    """Raise InvalidInput if there is a marker."""
    found = read_moved_marker(folder)
    if found is not None:
        to = str(found.get("to"))
        hint = HERE if to.startswith(SERVER) else THERE.format(to=to)
        raise InvalidInput(f"the jobs of this project were moved to {to}", hint=hint)


def leave_marker(folder: Path, *, to: str, token: str) -> None:
    """Write the marker: from now on the store here refuses to open."""
    with explain_errors(folder):
        make_private_folder(folder)
        atomic_write(folder / MARKER_FILE, json.dumps({"to": to, "token": token}))


def remove_marker(folder: Path) -> None:
    """Remove the marker: the move was cancelled, or the store is back."""
    with explain_errors(folder):
        (folder / MARKER_FILE).unlink(missing_ok=True)


def refuse_second_store(folder: Path, token: str) -> bool:
    """Whether this move already arrived here; InvalidInput if another store has jobs here."""
    if last_arrival(folder) == token:
        return True
    if (folder / NAME).exists() and read_moved_marker(folder) is None and has_jobs(folder):
        raise InvalidInput(
            "this machine already has jobs of this project, and two stores can't be merged",
            hint="run herd down --all there or here, then move",
        )
    return False


def last_arrival(folder: Path) -> str:
    """The token of the last move that arrived here; \"\" if none did."""
    try:
        return (folder / ARRIVED).read_text()
    except FileNotFoundError:
        return ""


def has_jobs(folder: Path) -> bool:
    """Whether the store contains jobs."""
    with explain_errors(folder), open_bare_file(folder / NAME) as connection:
        return connection.execute("SELECT 1 FROM jobs LIMIT 1").fetchone() is not None


def read_stored_jobs(folder: Path) -> list[StoredJob]:
    """The jobs of a store with a marker, which Database refuses to open."""
    with explain_errors(folder), open_bare_file(folder / NAME) as connection:
        return list(job_table.read_jobs(connection, MalformedRows()).values())


def open_bare_file(file: Path) -> "closing[sqlite3.Connection]":
    """The file without the checks and locks of Database."""
    return closing(sqlite3.connect(file))


def install_copy(folder: Path, copy: Path, token: str) -> None:
    """Make the copy the store here; an earlier store without jobs is set aside with its backups."""
    with explain_errors(folder):
        for ending in (*ASIDE, *BACKUPS):
            if (folder / f"{NAME}{ending}").exists():
                (folder / f"{NAME}{ending}").replace(folder / f"{NAME}.before{ending}")
        copy.replace(folder / NAME)
        atomic_write(folder / ARRIVED, token)
        (folder / MARKER_FILE).unlink(missing_ok=True)
    back_up(folder)
