"""Remembers on this machine which snapshot is which environment, by job, key and platform."""

import re
from collections.abc import Mapping

from tpuherd.files import atomic_write
from tpuherd.sync.snapshot_store import Archive

FOLDER = "environments"


def note_environment(archive: Archive, job: str, key: str, platform: str, snapshot: str) -> None:
    """Remember the snapshot; a host's platform may be any text."""
    folder = archive.folder / FOLDER
    folder.mkdir(exist_ok=True, mode=0o700)
    file = folder / f"{plain_name(job)}@{key}-{plain_name(platform)}"
    atomic_write(file, f"{platform}\n{snapshot}\n".encode())


def known_environments(archive: Archive, job: str, key: str) -> Mapping[str, str]:
    """Return the snapshots of a job's environment by platform."""
    found = {}
    for file in (archive.folder / FOLDER).glob(f"{plain_name(job)}@{key}-*"):
        platform, _, snapshot = file.read_text().strip().rpartition("\n")
        found[platform] = snapshot
    return found


def plain_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)[:100]
