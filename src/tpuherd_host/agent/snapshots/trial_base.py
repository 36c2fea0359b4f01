"""The base of a trial's folder: a copy of what the setup made there, which no trial writes to.

It lies below ~/.tpuherd/trees/<destination>.base, on the file system of the folder. The copy costs
nothing where the file system can clone files (XFS, Btrfs); elsewhere its size is counted before.
"""

import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from tpuherd_host.agent.snapshots.safe_tree import join_path
from tpuherd_host.agent.snapshots.tree import PIECE, walk_folders
from tpuherd_host.agent.snapshots.tree_layout import Destination
from tpuherd_host.agent.state_machine.transition import CallRefused

FICLONE = 0x40049409
RESERVE = 256 << 20  #: bytes that stay free on the disk, for what a trial writes
COPIED = frozenset((stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))


class Entry(NamedTuple):
    """A file or folder that the setup made."""

    path: bytes
    found: os.stat_result

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.found.st_mode)


def base_folder(spot: Destination) -> Path:
    # In a folder of its own: beside records and trees that are cleaned up by their age.
    return spot.folder.with_name(f"{spot.folder.name}.base") / "files"


def list_base(spot: Destination) -> Optional[Dict[bytes, bool]]:
    """List the paths of the base, parents first, and whether each is a folder; None: no base."""
    tree = os.fsencode(str(base_folder(spot)))
    if not os.path.isdir(tree):
        return None
    paths: Dict[bytes, bool] = {}
    for path, children in walk_folders(tree):
        for child in children:
            below = path + b"/" + child.name if path else child.name
            paths[below] = child.is_dir(follow_symlinks=False)
    return paths


def remove_base(spot: Destination) -> None:
    shutil.rmtree(str(base_folder(spot).parent), ignore_errors=True)


def make_base(spot: Destination, paths: Iterable[bytes], pause: Callable[[], None]) -> None:
    """Copy these paths of the folder, parents first; `full` if they would not fit on its disk."""
    remove_base(spot)
    base, tree = base_folder(spot), os.fsencode(str(spot.dest))
    new = base.with_name("new")
    new.parent.mkdir(parents=True, mode=0o700)
    new.mkdir()
    entries = [Entry(path, os.lstat(join_path(tree, path))) for path in paths]
    refuse_if_too_large(spot, entries, new)
    for one in entries:
        pause()
        source, target = join_path(tree, one.path), join_path(os.fsencode(str(new)), one.path)
        if one.kind not in COPIED:
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if one.kind == stat.S_IFREG and one.found.st_nlink > 1:
            separate_links(source, target, os.fsencode(str(base.with_name("copy"))))
        else:
            copy_entry(source, target)
    new.rename(base)


def separate_links(source: bytes, target: bytes, copy: bytes) -> None:
    """Keep a file that has other names, such as one in the cache of a package manager, as the
    base's, and put a copy in its place: then a trial cannot write through to the other names."""
    try:
        os.link(source, target)
    except OSError:  # on another file system: that copy is ours alone, but the names stay shared
        copy_file(source, target)
        return
    copy_file(source, copy)
    os.replace(copy, source)


def copy_entry(source: bytes, target: bytes) -> None:
    """Copy a file, a link or an empty folder to where nothing is, with its mode and time."""
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        os.makedirs(target, exist_ok=True)
        os.chmod(target, stat.S_IMODE(mode) | stat.S_IRWXU)
    elif stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
    else:
        copy_file(source, target)


def copy_file(source: bytes, target: bytes) -> bool:
    """Copy a file to where nothing is, with its mode and time; return whether it shares its blocks
    until one of the two is written to, and so takes no room."""
    with open(source, "rb", buffering=0) as here, open(target, "xb", buffering=0) as there:
        cloned = clone_file(here.fileno(), there.fileno())
        if not cloned:
            shutil.copyfileobj(here, there, PIECE)
        found = os.fstat(here.fileno())
        os.fchmod(there.fileno(), stat.S_IMODE(found.st_mode))
        os.utime(there.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
    return cloned


def clone_file(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:  # the file system cannot
        return False
    return True


def refuse_if_too_large(spot: Destination, entries: List[Entry], new: Path) -> None:
    files = [one for one in entries if one.kind == stat.S_IFREG]
    need = sum(one.found.st_size for one in files)
    disk = os.statvfs(str(new))
    free = disk.f_bavail * disk.f_frsize - RESERVE
    many = len(entries) if disk.f_files else 0
    if need <= max(0, free) and many <= disk.f_favail:
        return
    if many <= disk.f_favail and is_cloning(spot, files, new):
        return
    raise CallRefused(
        "full",
        f"the setup made {need / 1e9:.3g} GB in {len(files):,} files in {spot.dest}. They are"
        " copied once, so that no trial finds what another wrote there, and the disk has room for"
        f" {max(0, free) / 1e9:.3g} GB: let the setup put what trials only read outside of the"
        " folder, for example in ~/data",
    )


def is_cloning(spot: Destination, files: List[Entry], new: Path) -> bool:
    """Whether copies cost no room here."""
    largest = max(files, key=lambda one: one.found.st_size)
    probe = os.fsencode(str(new.with_name("probe")))
    try:
        return copy_file(join_path(os.fsencode(str(spot.dest)), largest.path), probe)
    finally:
        os.unlink(probe)


def file_clock_ns(spot: Destination) -> int:
    """Return the time by the clock of the folder's file system."""
    mark = base_folder(spot).with_name("now")
    with open(str(mark), "w") as file:
        return os.fstat(file.fileno()).st_mtime_ns


def is_changed(entry: "os.DirEntry[bytes]", kept: bytes, since_ns: int) -> bool:
    """Whether a file or link of the folder differs from the base's. The kernel's time of its last
    change decides first, which no program can set back; what is younger is read."""
    found = entry.stat(follow_symlinks=False)
    if found.st_ctime_ns <= since_ns:
        return False
    there = os.lstat(kept)
    if stat.S_ISLNK(found.st_mode) and stat.S_ISLNK(there.st_mode):
        return os.readlink(entry.path) != os.readlink(kept)
    return file_marks(found) != file_marks(there) or not has_same_content(entry.path, kept)


def file_marks(found: os.stat_result) -> Tuple[int, int, int]:
    return found.st_mode, found.st_size, found.st_mtime_ns


def has_same_content(one: bytes, other: bytes) -> bool:
    with open(one, "rb") as here, open(other, "rb") as there:
        while True:
            piece = here.read(PIECE)
            if piece != there.read(PIECE):
                return False
            if not piece:
                return True
