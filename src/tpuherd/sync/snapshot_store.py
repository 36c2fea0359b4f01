"""Snapshots kept on this machine, so that any of them can be shipped again exactly."""

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
from tpuherd.sync.snapshot_git import IndexStamp, Listing
from tpuherd.sync.upload_check import Finding
from tpuherd_host.agent.snapshots.blobs import BlobsInUse, BlobStore
from tpuherd_host.agent.snapshots.manifest import (
    content_sizes,
    pack_rows,
    parse_row,
    unpack_rows,
)

FOLDER = "snapshots"  #: within our folder for data
AGE_MAX_S = 90 * 86_400
BYTES_MAX = 10_000_000_000
TREES_MAX = 4
FULL = (errno.ENOSPC, errno.EDQUOT)
SEEN = struct.Struct(">qqQQIBH")
MAGIC = b"tpuherd seen 1\n"

Signature = tuple[int, int, int, int, int]  #: mtime_ns, ctime_ns, size, inode, mode


class FileStamp(NamedTuple):
    """A file as it was when it was read last."""

    signature: Signature
    row: bytes
    verdict: int


class StoredSnapshot(NamedTuple):
    """A snapshot that is in the archive."""

    id: str
    rows: tuple[bytes, ...]
    size: int
    findings: tuple[Finding, ...]
    ids: frozenset[bytes]  #: of all contents
    seen: Mapping[bytes, FileStamp]  #: the files it is of
    listing: Listing | None = None  #: what git says where it names exactly these


class GitIndexTrust(NamedTuple):
    """How far git's word is good for a tree: as long as its index is the same."""

    seen: Mapping[bytes, FileStamp]  #: the tree's files
    stamp: IndexStamp
    tracked: frozenset[bytes]  #: all paths of the index
    doubted: frozenset[bytes]  #: files that may have changed though git says that they did not


class Archive:
    """The folder with all snapshots, their contents, and what is known of the trees they are of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows_folder = folder / "rows"
        self.seen_folder = folder / "seen"
        self.repositories = folder / "repositories"
        self.pins_folder = folder / "pins"
        for each in (self.rows_folder, self.seen_folder, self.repositories, self.pins_folder):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.blobs = BlobStore(folder / "blobs")
        self.last: dict[
            Path, StoredSnapshot
        ] = {}  #: of the trees that were taken last, the last one
        self.grounds: dict[Path, GitIndexTrust] = {}
        self._seen: dict[Path, tuple[int, dict[bytes, FileStamp]]] = {}

    @contextlib.contextmanager
    def handle_full_disk(self) -> Iterator[None]:
        """Broken where this machine has no room for what is written in here; what no snapshot needs
        goes, so that the disk is not left full.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            with contextlib.suppress(OSError):
                self.prune_old((self.folder / "tick").stat().st_mtime)
            sentence = f"this machine's disk is full: {self.folder} can't be written"
            raise OperationFailed(
                sentence, hint="free some space there, and say it again"
            ) from None

    # ---- snapshots -------------------------------------------------------------------------------

    def load_rows(self, id: str) -> list[bytes] | None:
        """A snapshot's rows; None when it isn't here."""
        try:
            return unpack_rows((self.rows_folder / id).read_bytes())
        except FileNotFoundError:
            return None

    def add(
        self,
        rows: Iterable[bytes],
        findings: tuple[Finding, ...] = (),
        seen: Mapping[bytes, FileStamp] | None = None,
    ) -> "StoredSnapshot":
        """Keep a snapshot whose contents are here."""
        ordered = tuple(sorted(rows))
        piece = pack_rows(ordered)
        id = hashlib.sha256(piece).hexdigest()
        if not self.mark_used(id):
            write_atomically(self.rows_folder / id, piece)
        size = sum(int.from_bytes(each[-40:-32], "big") for each in ordered)
        ids = frozenset(each[-32:] for each in ordered)
        return StoredSnapshot(id, ordered, size, findings, ids, seen or {})

    def mark_used(self, id: str) -> bool:
        """The age by which it goes counts from now on; whether it is here."""
        try:
            os.utime(self.rows_folder / id)
        except FileNotFoundError:
            return False
        return True

    def pin_snapshots(self, who: str, ids: Iterable[str]) -> None:
        """These stay, however old, as long as this job wants them; what it wanted before may go."""
        if not re.fullmatch(r"[\w.-]+", who) or who.startswith("."):
            raise ValueError(f"{who!r} can't be the name of who wants a snapshot")
        file, wanted = self.pins_folder / who, sorted(ids)
        if wanted:
            write_atomically(file, "\n".join(wanted).encode())
        else:
            file.unlink(missing_ok=True)

    def pinned_ids(self) -> frozenset[str]:
        """What anybody wants."""
        found: set[str] = set()
        for file in self.pins_folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # just now
                found.update(file.read_text().split())
        return frozenset(found)

    def prune_old(self, now: float) -> None:
        """Old snapshots go, and the oldest where all are too much; those that are pinned stay."""
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

    # ---- what trees looked like ------------------------------------------------------------------

    def known_files(self, tree: Path) -> dict[bytes, FileStamp]:
        """What is known of a tree's files, by their path."""
        file = self._stamp_file(tree)
        try:
            stamp = file.stat().st_mtime_ns
        except FileNotFoundError:
            return {}
        known = self._seen.pop(tree, None)
        if known is None or known[0] != stamp:
            known = (stamp, unpack_stamps(file.read_bytes()))
        self._seen[tree] = known  # the latest
        self._evict_old_trees()
        return known[1]

    def remember_files(self, tree: Path, seen: dict[bytes, FileStamp]) -> None:
        """This is how its files are now."""
        file = self._stamp_file(tree)
        write_atomically(file, MAGIC + b"".join(pack_stamp(each) for each in seen.values()))
        self._seen.pop(tree, None)
        self._seen[tree] = (file.stat().st_mtime_ns, seen)
        self._evict_old_trees()

    def _evict_old_trees(self) -> None:
        """What is known of a tree may be large: only that of a few stays in memory."""
        while len(self._seen) > TREES_MAX:
            tree = next(iter(self._seen))
            self._seen.pop(tree, None)
            self.last.pop(tree, None)
            self.grounds.pop(tree, None)

    def _stamp_file(self, tree: Path) -> Path:
        return self.seen_folder / hashlib.sha256(os.fsencode(tree)).hexdigest()[:24]

    def file_system_time(self) -> int:
        """The time by this machine's file systems."""
        file = self.folder / "tick"
        file.touch()
        os.utime(file)
        return file.stat().st_mtime_ns

    # ---- approvals -------------------------------------------------------------------------------

    def approve_findings(self, findings: Iterable[Finding]) -> None:
        """These may be shipped: do not ask again."""
        with open(self.folder / "approved", "a") as file:
            file.writelines(f"{each.id}\n" for each in findings)

    def approved_ids(self) -> frozenset[str]:
        """What was approved."""
        try:
            return frozenset((self.folder / "approved").read_text().splitlines())
        except FileNotFoundError:
            return frozenset()


@cache
def open_archive(state: Path) -> Archive:
    """The archive in our folder for data; whoever lives long remembers what it knows of trees."""
    return Archive(state / FOLDER)


def write_atomically(file: Path, piece: bytes) -> None:
    """A file, whole or not at all."""
    fresh = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
    fresh.write_bytes(piece)
    fresh.replace(file)


def pack_stamp(seen: FileStamp) -> bytes:
    """One file, as bytes."""
    return SEEN.pack(*seen.signature, seen.verdict, len(seen.row)) + seen.row


def unpack_stamps(piece: bytes) -> dict[bytes, FileStamp]:
    """All files of a tree; none where they were written by another version, or cut."""
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
