"""Scans a folder: which files to ship, and which are unchanged since they were last read.

Git compares files with its index faster than we can, but without fractions of a second. So we trust
git for a file if we compared it after git did and both agreed, and if its times are older than the
second in which the index was written: any later change gives it a later time. All other files we
compare ourselves, and all files if the index was rewritten.
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
from tpuherd.sync.name_case import require_distinct_names
from tpuherd.sync.snapshot_git import Environment, Listing
from tpuherd.sync.snapshot_store import Archive, FileStamp, GitIndexTrust, Signature

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeScan:
    """The state of a folder."""

    seen: dict[bytes, FileStamp]  #: files that are unchanged since they were last read
    fresh: dict[bytes, int]  #: files that must be read, with their size
    notes: list[str]
    listing: Listing  #: git's listing
    names: int  #: the number of paths in it
    ground: GitIndexTrust | None  #: for which files git can be trusted from now on

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.signature[2] for one in self.seen.values()) + sum(self.fresh.values())


def scan_tree(
    root: Path, before: Mapping[bytes, FileStamp], archive: Archive, now: int, env: Environment
) -> TreeScan:
    """Scan a folder; `now` is the file system's time in ns."""
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
            continue  # deleted, but still in git's index
        if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            fresh[path] = found.st_size
        elif not stat.S_ISDIR(found.st_mode):
            notes.append(f"left out {os.fsdecode(path)}: it is neither a file nor a symlink")
        elif (place / ".git").exists():
            inner = shipped_paths(
                place, snapshot_git.list_files(place, empty_repo_path(archive), env)
            )
            paths |= {path + b"/" + each for each in inner}
            waiting += {path + b"/" + each for each in inner} - same.keys()
        else:
            notes.append(f"left out the submodule {os.fsdecode(path)}: it is not checked out")
    require_distinct_names(root, paths, "rename one in git, or ship the commit itself: repo")
    seen = same
    if not same.keys() <= paths:
        seen = {path: one for path, one in same.items() if path in paths}
    return TreeScan(
        seen=seen, fresh=fresh, notes=notes, listing=listing, names=len(paths), ground=ground
    )


def shipped_paths(root: Path, listing: Listing) -> set[bytes]:
    """The paths of a listing, without those below a symlink: what git tracks there was deleted."""
    paths = snapshot_git.listed_paths(listing)
    folders: set[bytes] = set()
    above = {path.rpartition(b"/")[0] for path in paths}
    while above := above - folders - {b""}:
        folders |= above
        above = {folder.rpartition(b"/")[0] for folder in above}
    links = tuple(each + b"/" for each in folders if (root / os.fsdecode(each)).is_symlink())
    return {path for path in paths if not path.startswith(links)} if links else paths


def empty_repo_path(archive: Archive) -> Path:
    return archive.repositories / "empty"


def compare_with_git(
    root: Path, before: Mapping[bytes, FileStamp], archive: Archive, now: int, env: Environment
) -> tuple[dict[bytes, FileStamp], Listing, GitIndexTrust | None]:
    """The unchanged files, git's listing, and for which files git can be trusted.

    Asks git for untracked files and for changed files at the same time.
    """
    index = snapshot_git.index_path(root, env) if snapshot_git.is_work_tree(root) else None
    stamp = snapshot_git.stamp_index(index) if index else None
    if index is None or stamp is None or stamp.ctime_ns > now:  # the clock was set back
        with ThreadPoolExecutor(1) as asking:
            listed = asking.submit(snapshot_git.list_files, root, empty_repo_path(archive), env)
            return unchanged_files(root, before, before), listed.result(), None
    known = archive.grounds.get(root)
    if known and (known.seen is not before or known.stamp != stamp):
        known = None
    with ThreadPoolExecutor(1) as asking:
        listed = asking.submit(snapshot_git.list_files, root, empty_repo_path(archive), env, "-o")
        if known is None:
            changed = snapshot_git.changed_paths(root, env)
            tracked, agreed = snapshot_git.tracked_paths(root, env)
            same = unchanged_files(root, before, before)
            sure = git_trusted_paths(root, same, agreed - changed, stamp)
            ground = GitIndexTrust(before, stamp, tracked, frozenset(before.keys() - sure))
        elif 2 * len(known.doubted) > len(before):  # git would save us little
            same, ground = unchanged_files(root, before, before), known
        else:
            changed = snapshot_git.changed_paths(root, env)
            doubted = known.doubted | (before.keys() & changed)
            same, ground = unchanged_files(root, before, doubted), known._replace(doubted=doubted)
        listing = listed.result()
    # If the index was rewritten meanwhile, it is unknown which version git read.
    if snapshot_git.stamp_index(index) != stamp:
        listing = snapshot_git.list_files(root, empty_repo_path(archive), env)
        return unchanged_files(root, before, before), listing, None
    return same, listing._replace(tracked=ground.tracked), ground


def git_trusted_paths(
    root: Path,
    same: Mapping[bytes, FileStamp],
    agreed: Collection[bytes],
    stamp: snapshot_git.IndexStamp,
) -> Collection[bytes]:
    """The unchanged files that can't change without git noticing; none if a folder is on another
    device than the index, and so may have another clock.
    """
    second = stamp.ctime_ns // SECOND_NS * SECOND_NS
    sure = {p for p, one in same.items() if p in agreed and max(one.signature[:2]) < second}
    folders = {path.rpartition(b"/")[0] for path in sure}
    try:
        devices = {os.lstat(os.fsencode(root) + b"/" + each).st_dev for each in folders}
    except OSError:  # deleted meanwhile
        return ()
    return sure if devices <= {stamp.device} else ()


def unchanged_files(
    root: Path, before: Mapping[bytes, FileStamp], doubted: Collection[bytes]
) -> dict[bytes, FileStamp]:
    """The known files that are unchanged; compares only the doubted ones."""
    prefix = os.fsencode(root) + b"/"
    known = map(itemgetter(0), map(before.__getitem__, doubted))
    try:  # usually all exist: this runs no Python code per file
        other = list(map(ne, map(signature, map(os.lstat, map(prefix.__add__, doubted))), known))
    except OSError:
        other = [path_signature(prefix + path) != before[path].signature for path in doubted]
    same = dict(before)
    for path in compress(doubted, other):
        del same[path]
    return same


#: The attributes that change with a file.
signature: Callable[[os.stat_result], Signature] = attrgetter(
    "st_mtime_ns", "st_ctime_ns", "st_size", "st_ino", "st_mode"
)


def path_signature(whole: bytes) -> Signature | None:
    """The signature of a path; None if it does not exist."""
    try:
        return signature(os.lstat(whole))
    except OSError:
        return None
