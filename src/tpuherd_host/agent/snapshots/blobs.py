"""Contents by their sha256, many in one file, verified at every read.

A pack is written once, front to back; its index gets a line after each content, so that what was
written before an interruption is usable. Packs never change: trees get copies.
"""

import fcntl
import hashlib
import os
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Container, Dict, FrozenSet, Iterable, Iterator, Optional, Set, Tuple

PIECE = 1 << 20
ENTRY = struct.Struct(">32sQQ")  #: id, offset, size
INDEX = ".index"


class CorruptBlob(ValueError):
    """A content does not match its id."""


class BlobsInUse(OSError):
    """Someone is reading."""


class BlobStore:
    """A folder of packs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: Dict[bytes, Tuple[str, int, int]] = {}
        self.packs: Dict[str, int] = {}  #: how much of each index was read
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.reload_indexes()

    def reload_indexes(self) -> None:
        """Notice what other processes added or removed."""
        there = {file.stem for file in self.folder.iterdir() if file.suffix == INDEX}
        if self.packs.keys() - there:
            self.packs.clear()
            self.places.clear()
        for name in there:
            self._load_index(name)

    def _load_index(self, name: str) -> None:
        known = self.packs.get(name, 0)
        with suppress(FileNotFoundError), open(str(self.folder / (name + INDEX)), "rb") as index:
            index.seek(known)
            piece = index.read()
            whole = len(piece) - len(piece) % ENTRY.size
            for id, offset, size in ENTRY.iter_unpack(piece[:whole]):
                self.places[id] = (name, offset, size)
            self.packs[name] = known + whole

    def __contains__(self, id: object) -> bool:
        return id in self.places

    def has_all(self, ids: FrozenSet[bytes]) -> bool:
        return ids <= self.places.keys()

    def missing_ids(self, ids: Iterable[bytes]) -> Set[bytes]:
        return set(ids).difference(self.places)

    def read_pieces(self, id: bytes) -> Iterator[bytes]:
        """Yield a content piece by piece; raise CorruptBlob at the end if it is wrong."""
        try:
            name, offset, left = self.places[id]
            file = open(str(self.folder / name), "rb")  # noqa: SIM115
        except (KeyError, FileNotFoundError):
            self.places.pop(id, None)
            raise CorruptBlob(f"{id.hex()} is not here") from None
        digest = hashlib.sha256()
        with file:
            file.seek(offset)
            while left:
                piece = file.read(min(left, PIECE))
                if not piece:
                    break
                digest.update(piece)
                left -= len(piece)
                yield piece
        if digest.digest() != id:
            self.places.pop(id, None)
            raise CorruptBlob(f"{id.hex()} is damaged in {name}")

    def new_pack(self) -> "PackWriter":
        return PackWriter(self, os.urandom(8).hex())

    @contextmanager
    def shared_lock(self) -> Iterator[None]:
        """Prevent removals inside the block."""
        with open(str(self.folder / "lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            self.reload_indexes()
            yield

    def keep_only(self, ids: Container[bytes]) -> None:
        """Remove all other contents; BlobsInUse if someone is reading."""
        with open(str(self.folder / "lock"), "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BlobsInUse from None
            self.reload_indexes()
            self._remove_unused(ids)
        self.reload_indexes()

    def _remove_unused(self, ids: Container[bytes]) -> None:
        live: Dict[str, Dict[bytes, int]] = {name: {} for name in self.packs}
        for id, (name, _, size) in self.places.items():
            if id in ids:
                live[name][id] = size
        # Packs without an index were interrupted before their first content.
        for file in list(self.folder.iterdir()):
            if file.name != "lock" and file.name.replace(INDEX, "") not in live:
                file.unlink()
        for name, kept in sorted(live.items(), key=lambda pack: len(pack[1])):  # frees space first
            if (self.folder / name).stat().st_size <= 2 * sum(kept.values()):
                continue
            if kept:
                with self.new_pack() as pack:
                    for id in kept:
                        with suppress(CorruptBlob):
                            pack.add(self.read_pieces(id), again=True)
            (self.folder / (name + INDEX)).unlink()
            (self.folder / name).unlink()

    def disk_usage(self) -> int:
        return sum(file.stat().st_size for file in self.folder.iterdir())


class PackWriter:
    """Writes a pack; its files are created with the first content."""

    def __init__(self, blobs: BlobStore, name: str) -> None:
        self.blobs = blobs
        self.name = name
        self.offset = 0
        self.file: Optional[BinaryIO] = None
        self.index: Optional[BinaryIO] = None

    def __enter__(self) -> "PackWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self.file, self.index):
            if file is not None:
                with suppress(OSError):  # a full disk raises again at the next write
                    file.close()

    def _open_files(self) -> Tuple[BinaryIO, BinaryIO]:
        if self.file is None or self.index is None:
            path = str(self.blobs.folder / self.name)
            self.file = open(path, "xb")  # noqa: SIM115
            self.index = open(path + INDEX, "xb", buffering=0)  # noqa: SIM115
        return self.file, self.index

    def add(
        self, pieces: Iterable[bytes], id: Optional[bytes] = None, *, again: bool = False
    ) -> Tuple[bytes, int]:
        """Add a content; return its id and size. If `id` differs, CorruptBlob and nothing added."""
        file, index = self._open_files()
        digest = hashlib.sha256()
        size = 0
        try:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
                size += len(piece)
            found = digest.digest()
            if id is not None and found != id:
                raise CorruptBlob(f"{id.hex()}arrived as {found.hex()}")
            if found in self.blobs.places and not again:
                raise FileExistsError
            file.flush()
        except FileExistsError:
            self._roll_back(file)
            return found, size
        except BaseException:
            self._roll_back(file)
            raise
        index.write(ENTRY.pack(found, self.offset, size))
        self.blobs.places[found] = (self.name, self.offset, size)
        self.blobs.packs[self.name] = index.tell()
        self.offset += size
        return found, size

    def _roll_back(self, file: BinaryIO) -> None:
        """Remove what follows the last complete content."""
        with suppress(OSError):
            file.flush()
        file.seek(self.offset)
        file.truncate()
