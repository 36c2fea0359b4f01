"""Trees of files as snapshots describe them: written, compared, and switched atomically.

The nanoseconds of a file's mtime mark its content. So a file that someone edited in place is
detected without reading it, and never taken for the snapshot's.
"""

import ctypes
import errno
import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from tpuherd_host.agent.snapshots.manifest import ManifestRow

AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECOND = 1_000_000_000
SHIPPED = stat.S_IFMT(0o777777) | 0o100  #: the part of a mode that a snapshot records
CACHE = b"__pycache__"  #: Python makes it again


def join_path(tree: bytes, path: bytes) -> bytes:
    return tree + b"/" + path if path else tree


def content_mark(id: bytes) -> int:
    """Return the nanoseconds in the mtime of a file with this content."""
    return int.from_bytes(id[:8], "big") % SECOND


# ---- to compare ----------------------------------------------------------------------------------


def is_row_intact(tree: bytes, one: ManifestRow) -> bool:
    """Whether a tree still has this row's file as it was written."""
    path = join_path(tree, one.path)
    try:
        found = os.lstat(path)
        if stat.S_IFMT(found.st_mode) != stat.S_IFMT(one.mode):
            return False
        if one.is_link:
            return hashlib.sha256(os.readlink(path)).digest() == one.id
    except OSError:
        return False
    return has_row_marks(found, one)


def has_row_marks(found: os.stat_result, one: ManifestRow) -> bool:
    """Whether a file's stat matches the row."""
    return (
        found.st_mtime_ns % SECOND == content_mark(one.id)
        and found.st_size == one.size
        and not (found.st_mode ^ one.mode) & SHIPPED
    )


def needed_folders(rows: Iterable[ManifestRow]) -> Set[bytes]:
    """Return every folder that the rows need; b"" is the tree itself."""
    found = {b""}
    for one in rows:
        above = one.path if one.is_folder else one.path.rpartition(b"/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition(b"/")[0]
    return found


def walk_folders(
    tree: bytes, known: Optional[Set[bytes]] = None
) -> Iterator[Tuple[bytes, List["os.DirEntry[bytes]"]]]:
    """Yield these folders of a tree (or all), top down, with their entries; follow no symlink."""
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        with os.scandir(join_path(tree, path)) as entries:
            found = list(entries)
        for entry in found:
            below = path + b"/" + entry.name if path else entry.name
            if (known is None or below in known) and entry.is_dir(follow_symlinks=False):
                waiting.append(below)
        yield path, found


def unknown_paths(tree: bytes, rows: Iterable[ManifestRow], shared: Set[bytes]) -> Iterator[bytes]:
    """Return the topmost paths in a tree that no row explains."""
    rows = list(rows)
    above, files = needed_folders(rows) | shared, {one.path for one in rows if not one.is_folder}
    for path, entries in walk_folders(tree, above):
        for entry in entries:
            below = path + b"/" + entry.name if path else entry.name
            if below not in (above if entry.is_dir(follow_symlinks=False) else files):
                yield below


# ---- to write ------------------------------------------------------------------------------------


def make_folders(tree: bytes, rows: Iterable[ManifestRow]) -> None:
    for path in sorted(needed_folders(rows)):
        os.mkdir(join_path(tree, path), 0o755)


def write_row(tree: bytes, one: ManifestRow, pieces: Iterable[bytes]) -> None:
    path = join_path(tree, one.path)
    if one.is_link:
        os.symlink(b"".join(pieces), path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]
        set_mode_and_time(file, one)
    finally:
        os.close(file)


def set_mode_and_time(file: int, one: ManifestRow) -> None:
    """Set mode and mtime: the row's, or (in a snapshot) a second ago with the content's mark."""
    os.fchmod(file, one.mode & 0o777)
    when = one.mtime_ns
    if not when:
        when = (os.fstat(file).st_mtime_ns // SECOND - 1) * SECOND + content_mark(one.id)
    os.utime(file, ns=(when, when))


def link_unchanged(base: bytes, tree: bytes, rows: Iterable[ManifestRow]) -> List[ManifestRow]:
    """Link unchanged files from another tree; return the rows of the others."""
    left, lstat, link = [], os.lstat, os.link
    here, there = base + b"/", tree + b"/"
    for one in rows:
        path = one.path
        try:
            if not one.is_link and has_row_marks(lstat(here + path), one):
                link(here + path, there + path)
                continue
        except OSError:  # it is gone, on another file system, or has too many links
            pass
        left.append(one)
    return left


# ---- to switch -----------------------------------------------------------------------------------


def switch_tree(new: Path, dest: Path) -> bool:
    """Put a tree in place; a previous tree goes to where the new one was. Return whether there was
    one."""
    if not os.path.lexists(str(dest)):
        new.rename(dest)
        return False
    try:
        exchange_paths(new, dest)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        aside = new.with_name(new.name + ".aside")  # this file system can't swap: the next best way
        dest.rename(aside)
        try:
            new.rename(dest)
        except OSError:
            aside.rename(dest)
            raise
        aside.rename(new)
    return True


def exchange_paths(one: Path, other: Path) -> None:
    """Swap two paths atomically."""
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "no renameat2")
    paths = (os.fsencode(str(one)), os.fsencode(str(other)))
    if call(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def carry_over(
    old: bytes, dest: bytes, rows: Iterable[ManifestRow], now: Iterable[ManifestRow]
) -> List[bytes]:
    """Carry what the host itself made in the old tree over to the new one, also for processes that
    still run in the old one. Return what cannot be carried and stays."""
    stays = []
    found = unknown_paths(old, rows, needed_folders(now))
    for path in sorted(found, key=lambda path: (not path.endswith(CACHE), path)):
        here, there = join_path(old, path), join_path(dest, path)
        above, _, name = path.rpartition(b"/")
        try:
            if name == CACHE:
                if os.path.isdir(join_path(dest, above)) and not os.path.lexists(there):
                    os.rename(here, there)
                else:
                    shutil.rmtree(here)
            elif os.path.islink(here) and os.readlink(here) == there:
                continue
            elif os.path.lexists(there):
                stays.append(path)
            else:
                os.makedirs(join_path(dest, above), exist_ok=True)
                os.rename(here, there)
                os.symlink(there, here)
        except OSError:
            stays.append(path)
    return stays


def remove_known(tree: bytes, dest: bytes, rows: Iterable[ManifestRow]) -> bool:
    """Remove from an old tree what the rows know; return whether that was all."""
    files = {one.path for one in rows if not one.is_folder}
    for path, entries in reversed(list(walk_folders(tree))):
        cached = CACHE in path.split(b"/")
        for entry in entries:
            below = path + b"/" + entry.name if path else entry.name
            if entry.is_dir(follow_symlinks=False):
                continue
            led = entry.is_symlink() and os.readlink(entry.path) == join_path(dest, below)
            if led or cached or below in files:
                os.unlink(entry.path)
        with suppress(OSError):  # not empty: what the host made is not ours to remove
            os.rmdir(join_path(tree, path))
    return not os.path.lexists(tree)


# ---- copies --------------------------------------------------------------------------------------


def merge_tree(
    tree: bytes, dest: bytes, rows: Iterable[ManifestRow], names: Mapping[bytes, bytes]
) -> None:
    """Move each file of a tree to its place below `dest`, beside other files; `names` renames the
    topmost."""
    found = plan_moves(tree, dest, rows, names)
    for one, here, there in found:
        if one.is_folder:
            os.makedirs(there, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(there), exist_ok=True)
            os.replace(here, there)
    for one, _, there in reversed(found):
        if one.is_folder:
            os.chmod(there, one.mode & 0o777)
            os.utime(there, ns=(one.mtime_ns, one.mtime_ns))


def plan_moves(
    tree: bytes, dest: bytes, rows: Iterable[ManifestRow], names: Mapping[bytes, bytes]
) -> List[Tuple[ManifestRow, bytes, bytes]]:
    """Return moves; OSError if a folder is in a file's place or the reverse."""
    found = []
    for one in rows:
        top, _, rest = one.path.partition(b"/")
        path = names.get(top, top) + (b"/" + rest if rest else b"")
        there = join_path(dest, path)
        if os.path.lexists(there) and os.path.isdir(there) != one.is_folder:
            kind = "a folder" if os.path.isdir(there) else "no folder"
            raise OSError(errno.EEXIST, f"is {kind}", os.fsdecode(there))
        found.append((one, join_path(tree, one.path), there))
    return found


def error_text(error: OSError) -> str:
    """Return the error's text with its path, which may be bytes."""
    path = os.fsdecode(error.filename) + ": " if error.filename else ""
    return path + str(error.strerror or error)
