"""Hosts that keep files, each a home folder, with a store that they share."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuherd_host.agent.keep.copy_files import Copied, Keeper, Missed
from tpuherd_host.agent.keep.generation import begin_attempt
from tpuherd_host.agent.keep.kept_manifest import Generation, Manifest
from tpuherd_host.agent.keep.kept_store import FolderStore, KeepConfig, KeptStore
from tpuherd_host.agent.keep.remove_old import read_manifest
from tpuherd_host.agent.keep.restore import Restored, RowReader, restore_files

RUN = "me/gpt/gpt-0/run1"


class KeptHost:
    """A host, new unless its folder is there already."""

    def __init__(self, home: Path, store: KeptStore, worker: int = 0, workers: int = 1) -> None:
        self.home, self.store, self.agent = home, store, home / ".tpuherd"
        self.folder = home / "herd/gpt"
        self.worker, self.workers = worker, workers
        self.folder.mkdir(parents=True, exist_ok=True)
        self.keeper: Keeper

    def begin(self, attempt: int, **more: Any) -> Restored:
        """What the program of an attempt does before the command."""
        config = KeepConfig(RUN, "", "herd/gpt", attempt, self.worker, self.workers)
        config = config._replace(**more)
        begun = begin_attempt(self.store, config, 1000.0, interrupt)
        restored = restore_files(self.store, begun, config, self.home, self.agent)
        self.keeper = Keeper(self.store, config, begun, self.home, self.agent)
        self.keeper.pause = lambda seconds: None
        return restored

    def copy(self, number: int, **more: Any) -> Copied:
        found = self.keeper.copy(number, **more)
        assert isinstance(found, Copied), found
        return found

    def miss(self, number: int, **more: Any) -> Missed:
        found = self.keeper.copy(number, **more)
        assert isinstance(found, Missed), found
        return found

    def manifest(self, copied: Copied) -> Manifest:
        return read_manifest(self.store, copied.generation, self.worker)

    def manifest_of(self, number: int) -> Manifest:
        return read_manifest(self.store, Generation(1, number), self.worker)

    def paths(self, copied: Copied) -> list[str]:
        return [os.fsdecode(row.path) for row in self.manifest(copied).rows if row.kind != "d"]

    def content(self, copied: Copied, name: str) -> bytes:
        """What the parts of a generation have of a file."""
        manifest = self.manifest(copied)
        (row,) = [row for row in manifest.rows if row.path == name.encode()]
        return b"".join(RowReader(self.store, manifest).iter_row(row))

    def put(self, name: str, content: str | bytes = "x") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def tree(self) -> dict[bytes, object]:
        return dict(list_tree(self.folder))


def interrupt() -> None:
    raise InterruptedError("another worker has not begun")


def shared_folder(folder: Path) -> FolderStore:
    """A folder as all hosts would share it."""
    store = FolderStore(folder)
    store.is_shared = True
    return store


def list_tree(folder: Path) -> Iterator[tuple[bytes, object]]:
    """Yield all that `rsync -aAXc` compares, below a folder and of itself."""
    for place in (folder, *folder.rglob("*")):
        found = place.lstat()
        content = b""
        if stat.S_ISLNK(found.st_mode):
            content = os.fsencode(place.readlink())
        elif stat.S_ISREG(found.st_mode):
            content = place.read_bytes()
        way = os.fsencode(place.relative_to(folder))
        yield way, (found.st_mode, found.st_mtime_ns, content)
