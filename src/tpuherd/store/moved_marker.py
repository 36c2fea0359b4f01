"""A store that goes to another machine: a stone stands where it was, so that two are never used."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tpuherd.errors import InvalidInput
from tpuherd.model.stored_job import StoredJob
from tpuherd.store import job_table
from tpuherd.store.corruption import ASIDE, NAME, explain_errors

STONE = "moved.json"  #: {"to", "token"}: where it went, and on which journey
ARRIVED = "arrived"  #: the token of the last journey that ended here
BACK = "herd engine move --back brings it back; herd engine move --to finishes a move that was cut"


def read_moved_marker(folder: Path) -> Mapping[str, str] | None:
    """What stands there; None: the store is here."""
    try:
        found: Mapping[str, str] = json.loads((folder / STONE).read_bytes())
    except (FileNotFoundError, PermissionError):
        return None  # of a folder that is closed to us the database speaks
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{folder / STONE} can't be read ({error})") from error
    return found


def refuse_moved(folder: Path) -> None:
    """Unfit where a stone stands."""
    found = read_moved_marker(folder)
    if found is not None:
        raise InvalidInput(f"the jobs of this place were moved to {found.get('to')}", hint=BACK)


def leave_marker(folder: Path, *, to: str, token: str) -> None:
    """Set the stone: from now on nobody opens the store here."""
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = folder / f"{STONE}.new"
        draft.write_text(json.dumps({"to": to, "token": token}))
        draft.replace(folder / STONE)


def remove_marker(folder: Path) -> None:
    """It did not go after all."""
    with explain_errors(folder):
        (folder / STONE).unlink(missing_ok=True)


def copy_store(folder: Path, into: Path) -> None:
    """A consistent copy of the store, whose lease nobody has."""
    with explain_errors(folder):
        into.unlink(missing_ok=True)
        with open_bare_file(folder / NAME) as source, open_bare_file(into) as target:
            source.backup(target)
            target.execute("UPDATE lease SET until = 0")
            target.commit()
        into.chmod(0o600)


def refuse_second_store(folder: Path, token: str) -> bool:
    """Whether this journey ended here before; Unfit where another store lives."""
    if last_arrival(folder) == token:
        return True
    if (folder / NAME).exists() and read_moved_marker(folder) is None and has_jobs(folder):
        raise InvalidInput(
            "there are jobs of this place on that machine already, and two stores can't be one",
            hint="herd down --all there, or herd down --all here, then move",
        )
    return False


def last_arrival(folder: Path) -> str:
    """The journey that ended here last."""
    try:
        return (folder / ARRIVED).read_text()
    except FileNotFoundError:
        return ""


def has_jobs(folder: Path) -> bool:
    """Whether anything is wished there."""
    with explain_errors(folder), open_bare_file(folder / NAME) as connection:
        return connection.execute("SELECT 1 FROM jobs LIMIT 1").fetchone() is not None


def read_stored_jobs(folder: Path) -> list[StoredJob]:
    """What is wished in a store that nobody opens any more."""
    with explain_errors(folder), open_bare_file(folder / NAME) as connection:
        return list(job_table.read_jobs(connection).values())


def open_bare_file(file: Path) -> "closing[sqlite3.Connection]":
    """The bare file, as long as it is looked at."""
    return closing(sqlite3.connect(file))


def install_copy(folder: Path, copy: Path, token: str) -> None:
    """The copy is the store here; what was here before, and wished nothing, is put aside."""
    with explain_errors(folder):
        for ending in ASIDE:
            if (folder / f"{NAME}{ending}").exists():
                (folder / f"{NAME}{ending}").replace(folder / f"{NAME}.before{ending}")
        copy.replace(folder / NAME)
        draft = folder / f"{ARRIVED}.new"
        draft.write_text(token)
        draft.replace(folder / ARRIVED)
        (folder / STONE).unlink(missing_ok=True)
