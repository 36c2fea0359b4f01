"""Remembers on this machine what a job's own hosts installed, by job, key and platform.

A copy of an environment, here or in a bucket, is used only if its contents have the noted digest.
"""

import re
from collections.abc import Mapping
from contextlib import suppress

from msgspec import MsgspecError, json

from tpuherd.files import atomic_write, make_private_folder
from tpuherd.model.node_spec import EnvironmentNote
from tpuherd.sync.snapshot_store import Archive

FOLDER = "environments"


def note_environment(archive: Archive, job: str, key: str, note: EnvironmentNote) -> None:
    """Remember what a host installed; its platform may be any text."""
    folder = archive.folder / FOLDER
    make_private_folder(folder)
    name = f"{plain_name(job)}@{key}-{plain_name(note.platform)[:60]}"
    atomic_write(folder / name, json.encode(note))


def known_environments(archive: Archive, job: str, key: str) -> Mapping[str, EnvironmentNote]:
    """Return what is noted of a job's environment, by platform; what can't be read is not."""
    found = {}
    for file in (archive.folder / FOLDER).glob(f"{plain_name(job)}@{key}-*"):
        with suppress(MsgspecError, OSError):
            note = json.decode(file.read_bytes(), type=EnvironmentNote)
            found[note.platform] = note
    return found


def plain_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)
