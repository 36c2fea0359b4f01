"""Storage of checkpoints: a folder or a bucket behind one interface."""

import os
import shutil
import threading
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from tpuherd_host.cloud_storage import Bytes as Bytes
from tpuherd_host.cloud_storage import CloudStorage
from tpuherd_host.cloud_storage import TemporarilyUnreachable as TemporarilyUnreachable
from tpuherd_host.cloud_storage import Unreachable as Unreachable
from tpuherd_host.train import process_env


def is_temporary(trouble: OSError) -> bool:
    """Whether another try may help: no permanent reason is known."""
    return isinstance(trouble, TemporarilyUnreachable) or not isinstance(
        trouble, (Unreachable, PermissionError, NotADirectoryError)
    )


class FileFacts(NamedTuple):
    """What a listing says of a file."""

    size: int
    changed: float  #: seconds since 1970


class Readable(Protocol):
    """What files of a checkpoint are read from."""

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        """Return a file or a part of it; FileNotFoundError."""
        ...


class Place(Readable, Protocol):
    """A storage location. Names are paths with slashes; a partly written file is invisible."""

    location: str

    def names(self, beginning: str = "") -> list[str]:
        """Return all names with this prefix, sorted."""
        ...

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        """Return all names with this prefix, each with a checksum of its content."""
        ...

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        """Return all names with this prefix, each with its size and time."""
        ...

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        """Write a file, replacing one of that name."""
        ...

    def remove(self, beginning: str) -> None:
        """Remove all files with this prefix, if any."""
        ...


def place(location: str, environ: Mapping[str, str] | None = None) -> Place:
    """Open `gs://bucket/path` or a folder."""
    if location.startswith("gs://"):
        return Bucket(
            location, environ if environ is not None else process_env.process_environment()
        )
    return Folder(location)


def of_run(checkpoint: str, run: str) -> str:
    """Return where a run saves: below the job's checkpoint, unless it is a trial's own already."""
    whole = checkpoint.rstrip("/")
    return whole if whole.endswith(f"/{run}") else f"{whole}/{run}"


def above_run(location: str, run: str) -> str:
    """Return what the runs of a job share: the folder above a run's own."""
    return location.rstrip("/").removesuffix(f"/{run}")


class Folder:
    """A folder, which must be visible on every host of the program."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.path = Path(location).expanduser()

    def names(self, beginning: str = "") -> list[str]:
        return sorted(name for name in self._all_names() if name.startswith(beginning))

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        return {name: zlib.crc32(self.read(name)) for name in self.names(beginning)}

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        found = {}
        for name in self.names(beginning):
            try:
                stat = (self.path / name).stat()
            except FileNotFoundError:
                continue  # removed meanwhile
            found[name] = FileFacts(stat.st_size, stat.st_mtime)
        return found

    def _all_names(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.path):
            for file in files:
                yield (Path(folder) / file).relative_to(self.path).as_posix()

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        with (self.path / name).open("rb") as stream:
            stream.seek(first)
            return stream.read(-1 if length is None else length)

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with half.open("wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            half.replace(path)
            sync_directory(path.parent)
        except OSError:
            half.unlink(missing_ok=True)
            raise

    def remove(self, beginning: str) -> None:
        whole = self.path / beginning.rstrip("/")
        if beginning.endswith("/") and whole.is_dir():
            shutil.rmtree(whole, ignore_errors=True)
            return
        for name in self.names(beginning):
            (self.path / name).unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Sync a folder's entries to the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Bucket:
    """A path in a bucket of Cloud Storage, or of the emulator in STORAGE_EMULATOR_HOST."""

    def __init__(self, location: str, environ: Mapping[str, str]) -> None:
        self.location = location.rstrip("/")
        self.path = f"{self.location.removeprefix('gs://').partition('/')[2]}/".lstrip("/")
        self.storage = CloudStorage(self.location, environ)

    def names(self, beginning: str = "") -> list[str]:
        return sorted(
            item["name"].removeprefix(self.path)
            for item in self.storage.list_objects(self.path + beginning)
        )

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        """Return the bucket's own checksums: nothing is read."""
        sums = {}
        for item in self.storage.list_objects(self.path + beginning, "crc32c", "md5Hash"):
            digest = b64decode(item.get("crc32c") or item.get("md5Hash") or "")
            sums[item["name"].removeprefix(self.path)] = int.from_bytes(digest[:8], "big")
        return sums

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        found = {}
        for item in self.storage.list_objects(self.path + beginning, "size", "updated"):
            changed = datetime.fromisoformat(item["updated"].replace("Z", "+00:00"))
            name = item["name"].removeprefix(self.path)
            found[name] = FileFacts(int(item["size"]), changed.timestamp())
        return found

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        return self.storage.read(self.path + name, first, length)

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        self.storage.write(self.path + name, pieces)

    def remove(self, beginning: str) -> None:
        for name in self.names(beginning):
            with suppress(FileNotFoundError):
                self.storage.remove_object(self.path + name)
