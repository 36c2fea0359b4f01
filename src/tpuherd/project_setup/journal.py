"""The journal of what setups have changed in a project: one file for each project or world.

A change is recorded before its call and again after it, so that a kill at any time loses nothing.

setup/PROJECT.json   {"version": 1, "title": …, "changes": [see RecordedChange]}
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tpuherd.errors import InvalidInput, OperationFailed
from tpuherd.files import atomic_write, make_private_folder, try_lock
from tpuherd.project_setup.setup_types import GoalKind, RecordedChange
from tpuherd.settings.project_access import ProjectScope
from tpuherd.settings.project_settings import project_key

VERSION = 1


class SetupJournal:
    """The changes of one project, held in memory and in a file."""

    def __init__(self, file: Path, title: str) -> None:
        self.file = file
        self.title = title
        self.changes = read_changes(file)

    def find(self, kind: GoalKind, name: str) -> RecordedChange | None:
        """The recorded change of that kind and name."""
        found = (one for one in self.changes if (one.kind, one.name) == (kind, name))
        return next(found, None)

    def put(self, change: RecordedChange) -> None:
        """Record a change in place of an earlier record of the same."""
        kept = [one for one in self.changes if (one.kind, one.name) != (change.kind, change.name)]
        self._write([*kept, change])

    def remove(self, change: RecordedChange) -> None:
        self._write([one for one in self.changes if one != change])

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the journal alone, as it is then; raises if another setup holds it."""
        try:
            make_private_folder(self.file.parent)
            lock = try_lock(self.file.with_suffix(".lock"))
        except OSError as error:
            raise InvalidInput(f"{self.file} can't be used ({error.strerror})") from error
        if lock is None:
            raise OperationFailed(
                f"another herd setup is changing {self.title}", hint="wait until it ends"
            )
        try:
            self.changes = read_changes(self.file)
            yield
        finally:
            os.close(lock)

    def _write(self, changes: list[RecordedChange]) -> None:
        rows = [
            {
                "kind": one.kind.value,
                "name": one.name,
                "settled": one.settled,
                "at": one.at,
                "facts": dict(one.facts),
            }
            for one in changes
        ]
        content = {"version": VERSION, "title": self.title, "changes": rows}
        text = json.dumps(content, indent=2, ensure_ascii=False)
        try:
            atomic_write(self.file, f"{text}\n", durable=True)
        except OSError as error:
            raise OperationFailed(
                f"{self.file} can't be written ({error.strerror})",
                hint="nothing is changed without a record of it",
            ) from error
        self.changes = changes


def open_journal(place: ProjectScope) -> SetupJournal:
    """Return the journal as it is now. To change it, hold it."""
    return SetupJournal(journal_file(place), place.title)


def journal_file(place: ProjectScope) -> Path:
    """Return the file for a project, or for a world by its folder."""
    name = project_key(world=place.world, project=place.project)
    if place.world is not None:
        name = f"world-{sha256(os.fsencode(place.world)).hexdigest()[:12]}"
    return place.folders.config / "setup" / f"{name}.json"


def read_changes(file: Path) -> list[RecordedChange]:
    """Return the changes in the file, oldest first; raises InvalidInput if it is damaged."""
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise damaged_error(file, str(error)) from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise damaged_error(file, f"its version is not {VERSION}")
    try:
        return [
            RecordedChange(
                kind=GoalKind(one["kind"]),
                name=str(one["name"]),
                settled=bool(one["settled"]),
                at=float(one["at"]),
                facts=dict(one["facts"]),
            )
            for one in content["changes"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise damaged_error(file, f"a change is malformed: {error}") from error


def damaged_error(file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{file} can't be used ({why})",
        hint="it says what herd made in the project: restore it, or move it away to begin anew",
    )
