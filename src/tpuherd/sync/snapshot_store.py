"""The archive of snapshots on this machine, so that any of them can be shipped again exactly."""

import contextlib
import errno
import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tpuherd.errors import OperationFailed
from tpuherd.files import atomic_write, make_private_folder
from tpuherd.sync.snapshot_git import IndexStamp, Listing
from tpuherd.sync.upload_check import UploadRisk
from tpuherd_host.agent.snapshots.blobs import BlobsInUse, BlobStore
from tpuherd_host.agent.snapshots.manifest import (
    content_sizes,
    pack_rows,
    parse_row,
    unpack_rows,
)

FOLDER = "snapshots"  #: within our data folder
AGE_MAX_S = 90 * 86_400
BYTES_MAX = 10_000_000_000
TREES_MAX = 4
FULL = (errno.ENOSPC, errno.EDQUOT)
SEEN = struct.Struct(">qqQQIBH")
MAGIC = b"tpuherd seen 1\n"

Signature = tuple[int, int, int, int, int]  #: mtime_ns, ctime_ns, size, inode, mode


class FileStamp(NamedTuple):
    """The state of a file when it was last read."""

    signature: Signature
    row: bytes
    verdict: int


class StoredSnapshot(NamedTuple):
    """A snapshot in the archive."""

    id: str
    rows: tuple[bytes, ...]
    size: int
    findings: tuple[UploadRisk, ...]
    ids: frozenset[bytes]  #: ids of all contents
    seen: Mapping[bytes, FileStamp]  #: the files it was taken from
    listing: Listing | None = None  #: git's listing, if it names exactly these files


class GitIndexTrust(NamedTuple):
    """For which files of a tree git's answer can be trusted while its index is unchanged."""

    seen: Mapping[bytes, FileStamp]  #: the tree's known files
    stamp: IndexStamp
    tracked: frozenset[bytes]  #: all paths in the index
    doubted: frozenset[bytes]  #: files that may have changed even if git reports no change


class Archive:
    """The folder with all snapshots, their contents, and the file stamps of their trees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows_folder = folder / "rows"
        self.seen_folder = folder / "seen"
        self.repositories = folder / "repositories"
        self.pins_folder = folder / "pins"
        for each in (self.rows_folder, self.seen_folder, self.repositories, self.pins_folder):
            make_private_folder(each)
        self.blobs = BlobStore(folder / "blobs")
        self.last: dict[Path, StoredSnapshot] = {}  #: by tree, its last snapshot
        self.grounds: dict[Path, GitIndexTrust] = {}
        self._seen: dict[Path, tuple[int, dict[bytes, FileStamp]]] = {}

    @contextlib.contextmanager
    def handle_full_disk(self) -> Iterator[None]:
        """Raise OperationFailed if the disk is full, after removing unneeded contents."""
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            with contextlib.suppress(OSError):
                self.prune_old((self.folder / "tick").stat().st_mtime)
            sentence = f"this machine's disk is full: can't write to {self.folder}"
            raise OperationFailed(sentence, hint="free some space and try again") from None

    # ---- snapshots -------------------------------------------------------------------------------

    def load_rows(self, id: str) -> list[bytes] | None:
        """A snapshot's rows; None if it is not in the archive."""
        try:
            return unpack_rows((self.rows_folder / id).read_bytes())
        except FileNotFoundError:
            return None

    def add(
        self,
        rows: Iterable[bytes],
        findings: tuple[UploadRisk, ...] = (),
        seen: Mapping[bytes, FileStamp] | None = None,
    ) -> "StoredSnapshot":
        """Add a snapshot whose contents are already stored."""
        ordered = tuple(sorted(rows))
        piece = pack_rows(ordered)
        id = hashlib.sha256(piece).hexdigest()
        if not self.mark_used(id):
            atomic_write(self.rows_folder / id, piece)
        size = sum(int.from_bytes(each[-40:-32], "big") for each in ordered)
        ids = frozenset(each[-32:] for each in ordered)
        return StoredSnapshot(id, ordered, size, findings, ids, seen or {})

    def mark_used(self, id: str) -> bool:
        """Reset its age; returns whether it is in the archive."""
        try:
            os.utime(self.rows_folder / id)
        except FileNotFoundError:
            return False
        return True

    def pin_snapshots(self, who: str, ids: Iterable[str]) -> None:
        """Keep these for this job however old they are, instead of those it pinned before."""
        if not re.fullmatch(r"[\w.-]+", who) or who.startswith("."):
            raise ValueError(f"{who!r} is not a valid name of a job")
        file, wanted = self.pins_folder / who, sorted(ids)
        if wanted:
            atomic_write(file, "\n".join(wanted).encode())
        else:
            file.unlink(missing_ok=True)

    def pinned_ids(self) -> frozenset[str]:
        """The snapshots that any job has pinned."""
        found: set[str] = set()
        for file in self.pins_folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # unpinned right now
                found.update(file.read_text().split())
        return frozenset(found)

    def prune_old(self, now: float) -> None:
        """Remove old snapshots, and the oldest beyond BYTES_MAX; pinned ones stay."""
        pinned = self.pinned_ids()
        files = sorted(self.rows_folder.iterdir(), key=lambda file: -file.stat().st_mtime)
        live: dict[bytes, int] = {}
        for file in files:
            rows = content_sizes(map(parse_row, unpack_rows(file.read_bytes())))
            total = sum({**live, **rows}.values())
            old = file.stat().st_mtime < now - AGE_MAX_S or total > BYTES_MAX
            if old and file.name not in pinned and file != files[0]:
                file.unlink()
            else:
                live.update(rows)
        for file in self.seen_folder.iterdir():
            if file.stat().st_mtime < now - AGE_MAX_S:
                file.unlink(missing_ok=True)
        with contextlib.suppress(BlobsInUse):
            self.blobs.keep_only(live)

    # ---- file stamps of trees --------------------------------------------------------------------

    def known_files(self, tree: Path) -> dict[bytes, FileStamp]:
        """The stamps of a tree's files, by path."""
        file = self._stamp_file(tree)
        try:
            stamp = file.stat().st_mtime_ns
        except FileNotFoundError:
            return {}
        known = self._seen.pop(tree, None)
        if known is None or known[0] != stamp:
            known = (stamp, unpack_stamps(file.read_bytes()))
        self._seen[tree] = known  # moved to the end: used last
        self._evict_old_trees()
        return known[1]

    def remember_files(self, tree: Path, seen: dict[bytes, FileStamp]) -> None:
        """Save the stamps of a tree's files."""
        file = self._stamp_file(tree)
        atomic_write(file, MAGIC + b"".join(pack_stamp(each) for each in seen.values()))
        self._seen.pop(tree, None)
        self._seen[tree] = (file.stat().st_mtime_ns, seen)
        self._evict_old_trees()

    def _evict_old_trees(self) -> None:
        """Keep the stamps of only a few trees in memory, as they may be large."""
        while len(self._seen) > TREES_MAX:
            tree = next(iter(self._seen))
            self._seen.pop(tree, None)
            self.last.pop(tree, None)
            self.grounds.pop(tree, None)

    def _stamp_file(self, tree: Path) -> Path:
        return self.seen_folder / hashlib.sha256(os.fsencode(tree)).hexdigest()[:24]

    def file_system_time(self) -> int:
        """The current time of the file system's clock, in ns."""
        file = self.folder / "tick"
        file.touch()
        os.utime(file)
        return file.stat().st_mtime_ns

    # ---- approvals -------------------------------------------------------------------------------

    def approve_findings(self, findings: Iterable[UploadRisk]) -> None:
        """Remember that these may be shipped without asking again."""
        with open(self.folder / "approved", "a") as file:
            file.writelines(f"{each.id}\n" for each in findings)

    def approved_ids(self) -> frozenset[str]:
        try:
            return frozenset((self.folder / "approved").read_text().splitlines())
        except FileNotFoundError:
            return frozenset()


@cache
def open_archive(state: Path) -> Archive:
    """The archive in our data folder; a process opens it once, so that stamps stay in memory."""
    return Archive(state / FOLDER)


def pack_stamp(seen: FileStamp) -> bytes:
    return SEEN.pack(*seen.signature, seen.verdict, len(seen.row)) + seen.row


def unpack_stamps(piece: bytes) -> dict[bytes, FileStamp]:
    """The stamps of a tree; empty if another version wrote them or the file is cut."""
    found: dict[bytes, FileStamp] = {}
    if not piece.startswith(MAGIC):
        return found
    at, size, unpack = len(MAGIC), SEEN.size, SEEN.unpack_from
    try:
        while at < len(piece):
            *signature, verdict, length = unpack(piece, at)
            row = piece[at + size : at + size + length]
            found[row[:-53]] = FileStamp((*signature,), row, verdict)
            at += size + length
    except struct.error:
        return {}
    return found
