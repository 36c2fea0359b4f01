"""Copies shards from a bucket to this host's disk when one of their samples is needed."""

import fnmatch
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.storage import Folder, place

FOLDER = "~/.cache/tpuherd/shards"
ROOM = 20 << 30  #: bytes; the least recently used shards are deleted
SIZES = "sizes.json"  #: beside shards: the sample count of each; other tools write it too


def known_sizes(paths: Sequence[str]) -> Mapping[str, int]:
    """Return the sample counts that are recorded beside the shards; others are counted later."""
    found: dict[str, int] = {}
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        there = place(folder)
        names = set(there.names())
        wanted = [path for path in paths if path.rpartition("/")[0] == folder]
        missing = [path for path in wanted if path.rpartition("/")[2] not in names]
        if missing:
            raise InvalidSetup(f"there is no {missing[0]}")
        sizes = json.loads(there.read(SIZES)) if SIZES in names else {}
        found |= {f"{folder}/{name}": int(many) for name, many in sizes.items()}
    return found


class ShardCache:
    """A folder with as many shards as fit. Processes of a host may share it."""

    def __init__(self, folder: str = FOLDER, room: int = ROOM) -> None:
        self.folder = Path(folder).expanduser()
        self.room = room

    def shard_path(self, url: str) -> Path:
        return self.folder / f"{blake2b(url.encode(), digest_size=8).hexdigest()}-{Path(url).name}"

    def fetch_shard(self, url: str) -> Path:
        path = self.shard_path(url)
        if path.exists():
            os.utime(path)
            return path
        folder, _, name = url.rpartition("/")
        try:
            content = place(folder).read(name)
        except FileNotFoundError:
            raise InvalidSetup(f"{url} is gone") from None
        Folder(str(self.folder)).write(path.name, [content])
        self.make_room()
        return path

    def make_room(self) -> None:
        """Delete the least recently used shards; a process that has one open can still read it."""
        files = sorted(self._cached_files())
        used = sum(size for _, size, _ in files)
        for _, size, file in files[:-1]:
            if used <= self.room:
                return
            file.unlink(missing_ok=True)
            used -= size

    def _cached_files(self) -> Iterator[tuple[float, int, Path]]:
        """Return when each shard was last used, and its size."""
        for one in self.folder.iterdir() if self.folder.is_dir() else ():
            try:
                status = one.stat()
            except FileNotFoundError:  # another process made room
                continue
            if not one.name.startswith("."):
                yield status.st_mtime, status.st_size, one


def find_shards(location: str) -> list[str]:
    """Return every tar in a folder or bucket, or those that match its last part: train-*.tar."""
    folder, like = location.rstrip("/"), "*.tar"
    if "*" in folder:
        folder, _, like = folder.rpartition("/")
    found = fnmatch.filter(place(folder).names(), like)
    if not any("/" not in name for name in found):
        raise InvalidSetup(f"there is no {like} in {folder}")
    return [f"{folder}/{name}" for name in found if "/" not in name]
