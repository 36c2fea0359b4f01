"""Looking at a folder: what git would ship of it, and which files are as they were read last.

Git compares files with its index sooner than we can, by all that we compare but parts of a second.
So its word is taken for a file that was looked at by us after git, while both agreed, and whose
times are of a second before the index was written: whatever has happened to it since then has given
it a later one. All others we look at ourselves, and all of them where the index was written anew.
"""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, itemgetter, ne
from pathlib import Path

from tpuherd.sync import snapshot_git
from tpuherd.sync.snapshot_git import Environment, Listing
from tpuherd.sync.snapshot_store import Archive, FileStamp, GitIndexTrust, Signature

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeScan:
    """A folder as it is now."""

    seen: dict[bytes, FileStamp]  #: files that are as they were when they were read last
    fresh: dict[bytes, int]  #: those that must be read, with their size
    notes: list[str]
    listing: Listing  #: what git said
    names: int  #: how many paths that are
    ground: GitIndexTrust | None  #: how far git's word is good from now on

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.signature[2] for one in self.seen.values()) + sum(self.fresh.values())


def scan_tree(
    root: Path, before: Mapping[bytes, FileStamp], archive: Archive, now: int, env: Environment
) -> TreeScan:
    """What git would ship, and what is known of it; `now` is in nanoseconds, as of files."""
    same, listing, ground = compare_with_git(root, before, archive, now, env)
    last = archive.last.get(root)
    if last and last.seen is before and last.listing == listing and len(same) == len(before):
        return TreeScan(
            seen=same, fresh={}, notes=[], listing=listing, names=len(same), ground=ground
        )
    paths = shipped_paths(root, listing)
    fresh: dict[bytes, int] = {}
    notes: list[str] = []
    waiting = list(paths - same.keys())
    while waiting:
        path = waiting.pop().rstrip(b"/")
        place = root / os.fsdecode(path)
        try:
            found = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted, but not for git yet
        if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            fresh[path] = found.st_size
        elif not stat.S_ISDIR(found.st_mode):
            notes.append(f"{os.fsdecode(path)} is neither file nor symlink: left out")
        elif (place / ".git").exists():
            inner = shipped_paths(
                place, snapshot_git.list_files(place, empty_repo_path(archive), env)
            )
            paths |= {path + b"/" + each for each in inner}
            waiting += {path + b"/" + each for each in inner} - same.keys()
        else:
            notes.append(f"submodule {os.fsdecode(path)} is not checked out: left out")
    seen = same
    if not same.keys() <= paths:
        seen = {path: one for path, one in same.items() if path in paths}
    return TreeScan(
        seen=seen, fresh=fresh, notes=notes, listing=listing, names=len(paths), ground=ground
    )


def shipped_paths(root: Path, listing: Listing) -> set[bytes]:
    """The paths of a listing, without those that only a symlink leads to by now: what git has there
    is deleted.
    """
    paths = snapshot_git.listed_paths(listing)
    folders: set[bytes] = set()
    above = {path.rpartition(b"/")[0] for path in paths}
    while above := above - folders - {b""}:
        folders |= above
        above = {folder.rpartition(b"/")[0] for folder in above}
    links = tuple(each + b"/" for each in folders if (root / os.fsdecode(each)).is_symlink())
    return {path for path in paths if not path.startswith(links)} if links else paths


def empty_repo_path(archive: Archive) -> Path:
    """Where an empty repository may stand."""
    return archive.repositories / "empty"


def compare_with_git(
    root: Path, before: Mapping[bytes, FileStamp], archive: Archive, now: int, env: Environment
) -> tuple[dict[bytes, FileStamp], Listing, GitIndexTrust | None]:
    """Files that are as they were, and what git says. It is asked twice at the same time: for what
    it does not track, and for what is not as its index has it.
    """
    index = snapshot_git.index_path(root, env) if snapshot_git.is_work_tree(root) else None
    stamp = snapshot_git.stamp_index(index) if index else None
    if index is None or stamp is None or stamp.ctime_ns > now:  # the clock was set back
        with ThreadPoolExecutor(1) as asking:
            said = asking.submit(snapshot_git.list_files, root, empty_repo_path(archive), env)
            return unchanged_files(root, before, before), said.result(), None
    known = archive.grounds.get(root)
    if known and (known.seen is not before or known.stamp != stamp):
        known = None
    with ThreadPoolExecutor(1) as asking:
        said = asking.submit(snapshot_git.list_files, root, empty_repo_path(archive), env, "-o")
        if known is None:
            changed = snapshot_git.changed_paths(root, env)
            tracked, agreed = snapshot_git.tracked_paths(root, env)
            same = unchanged_files(root, before, before)
            sure = git_trusted_paths(root, same, agreed - changed, stamp)
            ground = GitIndexTrust(before, stamp, tracked, frozenset(before.keys() - sure))
        elif 2 * len(known.doubted) > len(before):  # git's word would spare us little
            same, ground = unchanged_files(root, before, before), known
        else:
            changed = snapshot_git.changed_paths(root, env)
            doubted = known.doubted | (before.keys() & changed)
            same, ground = unchanged_files(root, before, doubted), known._replace(doubted=doubted)
        listing = said.result()
    if snapshot_git.stamp_index(index) != stamp:  # written meanwhile: who knows which one git read
        listing = snapshot_git.list_files(root, empty_repo_path(archive), env)
        return unchanged_files(root, before, before), listing, None
    return same, listing._replace(tracked=ground.tracked), ground


def git_trusted_paths(
    root: Path,
    same: Mapping[bytes, FileStamp],
    agreed: Collection[bytes],
    stamp: snapshot_git.IndexStamp,
) -> Collection[bytes]:
    """Of the files that are as they were those that can't change without git's noticing; none where
    folders have another clock than the index.
    """
    second = stamp.ctime_ns // SECOND_NS * SECOND_NS
    sure = {p for p, one in same.items() if p in agreed and max(one.signature[:2]) < second}
    folders = {path.rpartition(b"/")[0] for path in sure}
    try:
        devices = {os.lstat(os.fsencode(root) + b"/" + each).st_dev for each in folders}
    except OSError:  # gone just now
        return ()
    return sure if devices <= {stamp.device} else ()


def unchanged_files(
    root: Path, before: Mapping[bytes, FileStamp], doubted: Collection[bytes]
) -> dict[bytes, FileStamp]:
    """Of the files that are known, those that are as they were; only the doubted are looked at."""
    prefix = os.fsencode(root) + b"/"
    known = map(itemgetter(0), map(before.__getitem__, doubted))
    try:  # as a rule all are there: no line of Python for each, and nothing of them is kept
        other = list(map(ne, map(signature, map(os.lstat, map(prefix.__add__, doubted))), known))
    except OSError:
        other = [path_signature(prefix + path) != before[path].signature for path in doubted]
    same = dict(before)
    for path in compress(doubted, other):
        del same[path]
    return same


#: What changes when a file does.
signature: Callable[[os.stat_result], Signature] = attrgetter(
    "st_mtime_ns", "st_ctime_ns", "st_size", "st_ino", "st_mode"
)


def path_signature(whole: bytes) -> Signature | None:
    """The same of a path; None where nothing is."""
    try:
        return signature(os.lstat(whole))
    except OSError:
        return None
