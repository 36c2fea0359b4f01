"""The folders of a destination's trees and records on a host.

Below ~/.tpuherd: store/blobs (contents), store/rows (snapshots by id), trees/<destination>/ with a
record of its trees and the trees themselves: those being received, and the last ones. A destination
on another file system has its trees beside it, so that they can be swapped atomically.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Set

from tpuherd_host.agent.snapshots.blobs import BlobsInUse, BlobStore
from tpuherd_host.agent.snapshots.manifest import (
    ManifestRow,
    content_sizes,
    parse_row,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.tree import carry_over, remove_known
from tpuherd_host.agent.state_machine.transition import CallRefused

TREES_KEPT = 3  #: including the current one
ROWS_KEPT = 6
STALE_S = 86_400
PART = ".part"
KNOWN: Dict[str, List[ManifestRow]] = {}  #: parsed rows of small snapshots from the last syncs
KNOWN_MAX, KNOWN_ROWS_MAX = 4, 5000


class Destination(NamedTuple):
    """A destination's present state."""

    dest: Path
    folder: Path  #: its trees
    record: Path
    trees: List[Dict[str, object]]  #: {"id", "inode"}, the oldest first
    current: Optional[str]  #: the id of the snapshot in place


def open_blobs(agent_folder: Path) -> BlobStore:
    return BlobStore(agent_folder / "store" / "blobs")


def rows_file(agent_folder: Path, id: str) -> Path:
    """Return the file of a snapshot's rows, which exists if all its contents are here."""
    folder = agent_folder / "store" / "rows"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / id


def load_rows(
    agent_folder: Path, id: Optional[str], *, part: bool = False
) -> Optional[List[bytes]]:
    """Load the rows of a snapshot that is here, or (`part`) of one that may lack contents."""
    if not id:
        return None
    path = rows_file(agent_folder, id)
    for file in (path, path.with_name(id + PART)) if part else (path,):
        with suppress(FileNotFoundError):
            return unpack_rows(file.read_bytes())
    return None


def complete_snapshots(agent_folder: Path) -> List[str]:
    """Return the ids of complete snapshots, newest first."""
    folder = rows_file(agent_folder, "x").parent
    files = [file for file in folder.iterdir() if "." not in file.name]
    return [file.name for file in sorted(files, key=lambda file: -file.stat().st_mtime)]


def known_rows(agent_folder: Path, id: Optional[str]) -> List[ManifestRow]:
    """Return a tree's parsed rows; none if the tree is unknown."""
    if id in KNOWN:
        return KNOWN[id]
    return remember_rows(
        id, [parse_row(each) for each in load_rows(agent_folder, id, part=True) or ()]
    )


def remember_rows(id: Optional[str], rows: List[ManifestRow]) -> List[ManifestRow]:
    """Cache rows that will be needed again soon."""
    if id and 0 < len(rows) <= KNOWN_ROWS_MAX:
        while len(KNOWN) >= KNOWN_MAX:
            KNOWN.pop(next(iter(KNOWN)), None)
        KNOWN[id] = rows
    return rows


def resolve_path(home: Path, text: str) -> Path:
    """Resolve a user's path from the login's home."""
    if not text or "\0" in text:
        raise CallRefused("unfit", "the destination is empty")
    if text == "~" or text.startswith("~/"):
        text = text[2:] or "."
    return Path(os.path.realpath(str(home / text)))


def find_destination(
    agent_folder: Path, home: Path, text: str, *, force: bool = False
) -> Destination:
    """Return the destination; CallRefused for a path where no tree may be."""
    dest = resolve_path(home, text)
    for no in (home.resolve(), agent_folder.resolve()):
        if dest == no or dest in no.parents:
            raise CallRefused("unfit", f"{dest} cannot be a destination; name a folder below it")
    if agent_folder.resolve() in dest.parents:
        raise CallRefused("unfit", f"{dest} belongs to the agent; name another destination")
    key = hashlib.sha256(os.fsencode(str(dest))).hexdigest()[:16]
    folder = agent_folder / "trees" / key
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    record = folder / "record.json"
    there = stat_destination(dest)
    trees: List[Dict[str, object]] = []
    with suppress(FileNotFoundError, ValueError):
        trees = json.loads(record.read_text())["trees"]
    above = dest.parent
    while not above.exists():
        above = above.parent
    if above.stat().st_dev != folder.stat().st_dev:
        folder = above / ".tpuherd-trees" / key
    current = None
    if there is not None:
        current = snapshot_in_place(dest, there, trees, force=force)
    check_writable(above)
    return Destination(dest, folder, record, trees, current)


def check_writable(folder: Path) -> None:
    if not os.access(str(folder), os.W_OK | os.X_OK):
        raise CallRefused("unfit", f"{folder} is not writable; name another destination")


def stat_destination(dest: Path) -> Optional[os.stat_result]:
    """Return the stat of what is in place, or None; CallRefused where no folder can be.

    To be called before the record is read: who switches records the new tree first, so that every
    tree that was seen in place is in a record read later.
    """
    try:
        there = os.lstat(str(dest))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise CallRefused(
            "unfit", f"{dest} leads through a file; name another destination"
        ) from None
    if not stat.S_ISDIR(there.st_mode):
        raise CallRefused("unfit", f"{dest} is a file, not a folder; name another destination")
    return there


def snapshot_in_place(
    dest: Path, there: os.stat_result, trees: List[Dict[str, object]], *, force: bool
) -> Optional[str]:
    """Return the id of the tree in place; CallRefused for someone else's files."""
    for tree in reversed(trees):
        if tree["inode"] == there.st_ino:
            return str(tree["id"])
    if not force and any(dest.iterdir()):
        raise CallRefused(
            "unfit",
            f"{dest} contains files that herd did not put there; name another destination, or"
            " --force to merge with them",
        )
    return None


@contextmanager
def lock_destination(spot: Destination) -> Iterator[None]:
    """Prevent others from changing this destination inside the block."""
    with open(str(spot.record.with_name("lock")), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_record(spot: Destination, trees: List[Dict[str, object]]) -> None:
    fresh = spot.record.with_name("record.new")
    fresh.write_text(json.dumps({"dest": str(spot.dest), "trees": trees}))
    fresh.replace(spot.record)


def remove_old_trees(
    agent_folder: Path, spot: Destination, trees: List[Dict[str, object]]
) -> List[Dict[str, object]]:
    """Remove old trees except for what the host made there; return the trees that are left."""
    inodes = {entry.stat().st_ino: entry for entry in spot.folder.iterdir() if entry.is_dir()}
    newest = spot.dest.stat().st_mtime
    dest = os.fsencode(str(spot.dest))
    left = trees[-TREES_KEPT:]
    for tree in trees[:-TREES_KEPT]:
        old = inodes.get(int(str(tree["inode"])))
        if old is None:
            continue
        rows = known_rows(agent_folder, str(tree["id"]))
        carry_over(
            os.fsencode(str(old)), dest, rows, known_rows(agent_folder, str(trees[-1]["id"]))
        )
        if not remove_known(os.fsencode(str(old)), dest, rows):
            left.insert(0, tree)
    ours = {tree["inode"] for tree in trees}
    for inode, entry in inodes.items():  # started long ago and never finished
        if inode not in ours and entry.stat().st_mtime < newest - STALE_S:
            shutil.rmtree(str(entry), ignore_errors=True)
    return left


def prune_store(agent_folder: Path, spare_max: int = ROWS_KEPT) -> None:
    """Remove the oldest rows and contents that no tree needs, when there are too many."""
    wanted: Set[str] = set()
    for record in (agent_folder / "trees").glob("*/record.json"):
        with suppress(ValueError, OSError):
            wanted.update(str(tree["id"]) for tree in json.loads(record.read_text())["trees"])
    folder = rows_file(agent_folder, "x").parent
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    spare = [file for file in files if file.name.split(".")[0] not in wanted]
    if len(spare) <= spare_max:
        return
    for file in spare[spare_max // 2 :]:
        file.unlink()
    remove_unused_contents(agent_folder)


def remove_unused_contents(agent_folder: Path) -> None:
    """Remove the contents that no snapshot on this host has."""
    live: Set[bytes] = set()
    for file in rows_file(agent_folder, "x").parent.iterdir():
        live.update(content_sizes(parse_row(each) for each in unpack_rows(file.read_bytes())))
    with suppress(BlobsInUse):
        open_blobs(agent_folder).keep_only(live)
