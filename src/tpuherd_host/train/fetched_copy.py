"""The copy of a checkpoint that this host fetched to its disk before the attempt.

A copy counts only if its `whole.json` is that of the checkpoint, byte by byte: that names the save
by step, attempt and time. What the copy lacks is read from the checkpoint itself.
"""

import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from tpuherd_host.train import process_env
from tpuherd_host.train.checkpoint_commit import NAME, step_folder
from tpuherd_host.train.storage import Folder, Place

AGENT = "HERD_AGENT"  #: the agent's folder on this host
COPIES = "checkpoint-copies"


class CopiedFiles:
    """Reads the files that the copy has from the disk, and others from the checkpoint's place."""

    def __init__(self, copy: Folder, place: Place) -> None:
        self.location = place.location
        self.copy = copy
        self.place = place
        self.was_read = False  #: anything of the copy

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        try:
            content = self.copy.read(name, first, length)
        except OSError:
            return self.place.read(name, first, length)
        self.was_read = True
        return content


def copy_folder(agent_folder: Path, location: str) -> Path:
    """Return where the copy of a run's checkpoints is."""
    return agent_folder / COPIES / sha256(location.encode()).hexdigest()[:16]


def own_copy(place: Place, environ: Mapping[str, str]) -> Folder | None:
    """Return the copy on this host, which may be of another step; None if there is none."""
    agent_folder = environ.get(AGENT)
    if not agent_folder:
        return None
    folder = copy_folder(Path(agent_folder), place.location)
    return Folder(str(folder)) if folder.is_dir() else None


def find_copy(place: Place, step: int, whole: bytes) -> CopiedFiles | None:
    """Return the copy of the checkpoint that says this about itself."""
    copy = own_copy(place, process_env.process_environment())
    if copy is None:
        return None
    try:
        same = copy.read(step_folder(step) + NAME) == whole
    except OSError:
        return None
    return CopiedFiles(copy, place) if same else None


def remove_copy(place: Place) -> None:
    """Free its room: it is read once. A fetch that is still under way ends by that."""
    copy = own_copy(place, process_env.process_environment())
    if copy is not None:
        shutil.rmtree(copy.path, ignore_errors=True)
