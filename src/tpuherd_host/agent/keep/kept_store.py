"""Where the generations of a run are: below a prefix of a bucket, or in a folder of this host.

Both hold the same names, and what is below one can be copied to the other:

    README.txt                           how to get everything back without herd
    attempts/ATTEMPT.json                what an attempt restores, written once, before it does
    attempts/left-out/NAME               a top-level entry that is left out for its size
    generations/ATTEMPT.NUMBER/w0000.jsonl  what worker 0 kept at one moment, written last
    generations/ATTEMPT.NUMBER/w0000.files  the same paths for `tar -T`
    parts/w0000/ATTEMPT.NUMBER.0000.tar  pieces of a tar stream, which never change
    damaged/ATTEMPT.NUMBER               a generation that is not to be restored any more
"""

import json
import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from tpuherd_host.cloud_storage import CloudStorage

PREFIX = "tpuherd-kept"
RUN = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*/){3}[A-Za-z0-9_][A-Za-z0-9._-]*")
CHUNK = 2 << 20  #: of a part on its way: four at a time, two chunks each in memory
PIECE = 1 << 20
BYTES_MAX, FILES_MAX, NAMED_FILES_MAX = 10**9, 20_000, 100_000
README = r"""These are files that a job's script wrote, kept by tpuherd (`keep` of the job).

generations/ATTEMPT.NUMBER/ is a moment; wNNNN.jsonl in it lists what one host had then and is
written last, so a generation is whole once each host has one. To get a host's files back:

    url=@URL@
    generation=$(gcloud storage ls "$url/generations/" | sort | tail -n 1)
    worker=w0000
    gcloud storage cp "$generation$worker.*" .
    mkdir parts
    sed -n 's/^\["part", "\([^"]*\)".*/\1/p' $worker.jsonl | sed "s|^|$url/|" |
        gcloud storage cp --read-paths-from-stdin parts/
    cat parts/* | tar -x --ignore-zeros --no-recursion --null -T $worker.files

folder/ then has what was in the job's working folder, root/ what was elsewhere.
"""


class KeepConfig(NamedTuple):
    """What a host is told about the kept files of an attempt."""

    run: str  #: OWNER/JOB/SLOT/RUN_ID
    store: str  #: gs://BUCKET/tpuherd-kept/RUN; "": a folder of this host
    folder: str  #: the working folder, from the home
    attempt: int
    worker: int
    workers: int
    paths: Tuple[str, ...] = ()  #: what `keep` names, and '!PATTERN' for what it leaves out
    same_node: bool = False  #: every host has this run's last folder: nothing is restored
    hidden: bool = False  #: open files can't be read: the command runs as another user
    grace_s: float = 30.0
    notice_grace_s: float = 25.0
    bytes_max: int = BYTES_MAX
    files_max: int = FILES_MAX

    @property
    def named(self) -> bool:
        return any(not path.startswith("!") for path in self.paths)


class Stored(NamedTuple):
    name: str
    bytes: int


def parse_config(text: str) -> KeepConfig:
    """Parse HERD_KEEP; ValueError."""
    try:
        found = json.loads(text)
        known = {name: found[name] for name in KeepConfig._fields if name in found}
        config = KeepConfig(**{**known, "paths": tuple(map(str, found.get("paths", ())))})
        numbers = (config.attempt, config.worker, config.workers)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not the configuration of kept files: {error}") from None
    if not all(type(number) is int for number in numbers) or not RUN.fullmatch(config.run):
        raise ValueError("not the configuration of kept files")
    if not 0 <= config.worker < config.workers or config.attempt < 0:
        raise ValueError("not the configuration of kept files")
    if config.named and "bytes_max" not in found:
        config = config._replace(bytes_max=1 << 62, files_max=NAMED_FILES_MAX)
    return config


def open_store(
    config: KeepConfig, environ: Mapping[str, str], agent_folder: Path
) -> "Union[BucketStore, FolderStore]":
    if config.store:
        return BucketStore(config.store, environ)
    return FolderStore(agent_folder / "kept" / "store" / config.run)


class BucketStore:
    """A prefix of a bucket, which all hosts share."""

    is_shared = True

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        bucket, _, prefix = self.url[len("gs://") :].partition("/")
        self._storage, self._prefix = CloudStorage(f"gs://{bucket}", environ), f"{prefix}/"

    def limit_time(self, time_s: float) -> None:
        """Repeat each request for no longer than this."""
        self._storage.time_s = time_s

    def write_new(self, name: str, pieces: Sequence[bytes]) -> bool:
        """Write an object unless there is another one; whether it has this content now."""
        return self._storage.write_new(self._prefix + name, pieces)

    def write(self, name: str, pieces: Sequence[bytes]) -> None:
        self._storage.write(self._prefix + name, pieces)

    def write_stream(self, name: str, blocks: Iterable[bytes]) -> None:
        self._storage.write_stream(self._prefix + name, blocks, CHUNK)

    def read(self, name: str, first: int = 0, length: Optional[int] = None) -> bytes:
        """Return an object or a part of it; FileNotFoundError."""
        return self._storage.read(self._prefix + name, first, length)

    def iter_pieces(self, name: str, first: int = 0) -> Iterator[bytes]:
        return self._storage.iter_pieces(self._prefix + name, first)

    def list(self, prefix: str) -> Iterator[Stored]:
        for one in self._storage.list_objects(self._prefix + prefix, "size"):
            yield Stored(str(one["name"])[len(self._prefix) :], int(one["size"]))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._storage.remove_object(self._prefix + name)


class FolderStore:
    """A folder of this host, for no one but its user."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self.url, self._numbers = str(folder), count()

    def limit_time(self, time_s: float) -> None:
        """A disk is not asked twice."""

    def write_new(self, name: str, pieces: Sequence[bytes]) -> bool:
        fresh = self._write_aside(name, pieces)
        try:
            os.link(fresh, self._path(name))
        except FileExistsError:
            return self.read(name) == b"".join(pieces)
        finally:
            os.unlink(fresh)
        return True

    def write(self, name: str, pieces: Sequence[bytes]) -> None:
        self.write_stream(name, pieces)

    def write_stream(self, name: str, blocks: Iterable[bytes]) -> None:
        os.replace(self._write_aside(name, blocks), self._path(name))

    def read(self, name: str, first: int = 0, length: Optional[int] = None) -> bytes:
        with open(self._path(name), "rb") as file:
            file.seek(first)
            return file.read() if length is None else file.read(length)

    def iter_pieces(self, name: str, first: int = 0) -> Iterator[bytes]:
        with open(self._path(name), "rb", buffering=0) as file:
            file.seek(first)
            yield from iter(lambda: file.read(PIECE), b"")

    def list(self, prefix: str) -> Iterator[Stored]:
        for folder, _, files in os.walk(self._path(prefix.rpartition("/")[0])):
            for file in files:
                name = os.path.relpath(os.path.join(folder, file), self.url)
                if name.startswith(prefix) and not file.startswith("."):
                    yield Stored(name, os.stat(os.path.join(folder, file)).st_size)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(name))
        with suppress(OSError):  # others are in it
            os.rmdir(os.path.dirname(self._path(name)))

    def _path(self, name: str) -> str:
        return os.path.join(self.url, name)

    def _write_aside(self, name: str, blocks: Iterable[bytes]) -> str:
        path = self._path(name)
        for folder in (self.url, os.path.dirname(path)):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        fresh = os.path.join(self.url, f".new.{os.getpid()}.{next(self._numbers)}")
        try:
            with open(fresh, "wb", opener=open_private) as file:
                for block in blocks:
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh)
            raise
        return fresh


def open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


KeptStore = Union[BucketStore, FolderStore]


def write_readme(store: KeptStore) -> None:
    """Tell people how to do without herd; it shows, too, whether this host may write."""
    store.write_new("README.txt", [README.replace("@URL@", store.url).encode()])


def read_json(store: KeptStore, name: str, bytes_max: int = 1 << 16) -> Any:
    """Read a small object of JSON; ValueError for anything else."""
    text = store.read(name, 0, bytes_max)
    return json.loads(text.decode("utf-8"))
