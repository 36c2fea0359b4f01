"""Tar shards with random access: an index, made once, says where each sample's files are."""

import os
import tarfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tpuherd_host.train import process_env
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.shard_cache import FOLDER, ROOM, SIZES, ShardCache, find_shards, known_sizes

BLOCK = 512
BUFFER = 1 << 20
TRIES = 100
READERS = 8  #: shards fetched at once, because buckets are slow to answer
PLAIN = (b"0", b"\0")  #: header types of ordinary files
#: Header types that the library handles, such as long names.
SPECIAL = (b"x", b"g", b"L", b"K", b"S")


class Member(NamedTuple):
    """A file of a sample: jpg, cls, json."""

    kind: str
    first: int  #: byte in the shard
    length: int


class Shard:
    """One tar file. Files with the same name up to the first dot of the last part are a sample."""

    def __init__(self, path: str | Path) -> None:
        self.file: int | None = None
        self.process = 0
        self.path = Path(path).expanduser()
        self.keys: list[str] = []
        self.starts = array("q", [0])
        self.members: list[Member] = []
        for name, first, length in tar_entries(self.path):
            key, kind = split_name(name)
            if not self.keys or self.keys[-1] != key:
                self.keys.append(key)
                self.starts.append(len(self.members))
            self.members.append(Member(kind, first, length))
            self.starts[-1] = len(self.members)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, place: int) -> dict[str, str | bytes]:
        """Return a sample as webdataset does: __key__, __url__ and each file's content."""
        found: dict[str, str | bytes] = {"__key__": self.keys[place], "__url__": str(self.path)}
        file = self.open_file()
        for member in self.members[self.starts[place] : self.starts[place + 1]]:
            found[member.kind] = os.pread(file, member.length, member.first)
        return found

    def open_file(self) -> int:
        """Open the tar, again in each worker process."""
        if self.file is None or self.process != os.getpid():
            self.file, self.process = os.open(self.path, os.O_RDONLY), os.getpid()
        return self.file

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "file": None}

    def __del__(self) -> None:
        if self.file is not None and self.process == os.getpid():
            os.close(self.file)


class RemoteShard:
    """One tar file in a bucket with a known number of samples."""

    def __init__(self, url: str, larder: ShardCache, samples: int | None) -> None:
        self.url = url
        self.larder = larder
        self.samples = samples
        self.shard: Shard | None = None

    def __len__(self) -> int:
        if self.samples is None:
            self.samples = len(self.local_shard())
        return self.samples

    def __getitem__(self, place: int) -> dict[str, str | bytes]:
        return {**self.local_shard()[place], "__url__": self.url}

    @property
    def is_here(self) -> bool:
        """Whether it is on this host's disk."""
        return self.shard is not None and self.shard.path.exists()

    def local_shard(self) -> Shard:
        """Return the copy on this host's disk. Threads may call it at once."""
        shard = self.shard
        if shard is None or not shard.path.exists():
            shard = self._open_local()
            if self.samples not in (None, len(shard)):
                listed = f"{SIZES} says {self.samples}"
                raise InvalidSetup(f"{self.url} has {len(shard)} samples, but {listed}")
            self.shard = shard
        return shard

    def _open_local(self) -> Shard:
        """Fetch and open it, even if another process deletes it meanwhile."""
        for _ in range(TRIES):
            try:
                shard = Shard(self.larder.fetch_shard(self.url))
                shard.open_file()
            except FileNotFoundError:
                continue
            return shard
        raise InvalidSetup(f"not enough disk space for {self.url} in {self.larder.folder}")


class Shards:
    """Many tar files as one list of lists; pass `sizes` to Split.

    `paths`: files or `gs://…`, or one string: their folder or bucket, or a pattern such as
    "gs://a/shards/train-*.tar". Shards in a bucket are copied to the folder `cache` when needed,
    and deleted when there are more than `room` bytes.
    """

    def __init__(
        self, paths: Sequence[str | Path] | str, *, cache: str = FOLDER, room: int = ROOM
    ) -> None:
        every = find_shards(paths) if isinstance(paths, str) else [str(path) for path in paths]
        far = [path for path in every if path.startswith("gs://")]
        sizes, larder = known_sizes(far), ShardCache(cache, room)
        uncounted = len(set(far) - set(sizes))
        if uncounted and not process_env.read_process_number(process_env.process_environment())[0]:
            process_env.log_message(
                f"no {SIZES} has {uncounted} of the shards: every host brings and counts them"
            )
        self.shards = [
            RemoteShard(path, larder, sizes.get(path)) if path.startswith("gs://") else Shard(path)
            for path in every
        ]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(shard) for shard in self.shards)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, shard: int) -> Shard | RemoteShard:
        return self.shards[shard]

    def fetch_shards(self, shards: Iterable[int]) -> None:
        """Fetch several shards at once."""
        wanted = [
            one for one in map(self.shards.__getitem__, shards) if isinstance(one, RemoteShard)
        ]
        missing = [one for one in wanted if not one.is_here]
        if len(missing) > 1:
            with ThreadPoolExecutor(READERS) as pool:
                list(pool.map(RemoteShard.local_shard, missing))


def split_name(name: str) -> tuple[str, str]:
    """Split a/b.c.jpg into sample a/b and file c.jpg."""
    folder, slash, last = name.rpartition("/")
    key, _, kind = last.partition(".")
    return folder + slash + key, kind.lower()


def tar_entries(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield name, first byte and length of every file in a tar; ten times as fast as tarfile."""
    with path.open("rb", buffering=BUFFER) as stream:
        while True:
            at = stream.tell()
            head = stream.read(BLOCK)
            if len(head) < BLOCK or head[0] == 0:
                return
            kind = head[156:157]
            if kind in SPECIAL or head[124] & 0x80:
                yield from entries_by_library(path, at)
                return
            digits = head[124:136].strip(b" \0") or b"0"
            if digits.strip(b"01234567"):  # a negative length would lead back
                raise InvalidSetup(f"{path} is damaged: a file in it has no valid length")
            length = int(digits, 8)
            if kind in PLAIN:
                name = head[:100].rstrip(b"\0")
                if head[257:262] == b"ustar" and head[345] and head[263:265] == b"00":
                    name = head[345:500].rstrip(b"\0") + b"/" + name
                yield name.decode("utf-8", "surrogateescape"), at + BLOCK, length
            stream.seek((length + BLOCK - 1) // BLOCK * BLOCK, os.SEEK_CUR)


def entries_by_library(path: Path, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield the rest of a tar that has long names or other rare headers."""
    with tarfile.open(path) as archive:
        for one in archive:
            if one.isreg() and one.offset >= start:
                yield one.name, one.offset_data, one.size
