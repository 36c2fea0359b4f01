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
from tpuherd_host.agent.snapshots.safe_tree import (
    NEW_FILE,
    SafeTree,
    join_path,
    open_tree,
    place_taken,
)

AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECOND = 1_000_000_000
SHIPPED = stat.S_IFMT(0o777777) | 0o100  #: the part of a mode that a snapshot records
CACHE = b"__pycache__"  #: Python makes it again
OWNERS = 0o700  #: every copied folder lets its owner in, so that it can be copied again
PIECE = 1 << 20


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


def make_folders(tree: SafeTree, rows: Iterable[ManifestRow]) -> None:
    """Make every folder that the rows need in an empty tree."""
    for path in sorted(needed_folders(rows) - {b""}):
        name, above = tree.open_parent(path)
        os.mkdir(name, 0o755, dir_fd=above)


def write_row(tree: SafeTree, one: ManifestRow, pieces: Iterable[bytes]) -> None:
    """Write a row's file, which must not be there yet."""
    if one.is_link:
        target = b"".join(pieces)
        name, above = tree.open_parent(one.path)
        os.symlink(target, name, dir_fd=above)
        return
    name, above = tree.open_parent(one.path)
    file = os.open(name, NEW_FILE, 0o600, dir_fd=above)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]
        set_mode_and_time(file, one)
    finally:
        os.close(file)


def read_row(tree: SafeTree, one: ManifestRow) -> Iterator[bytes]:
    """Read what was written for a row."""
    name, above = tree.open_parent(one.path)
    if one.is_link:
        yield os.readlink(name, dir_fd=above)
        return
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    with open(file, "rb") as content:
        piece = content.read(PIECE)
        while piece:
            yield piece
            piece = content.read(PIECE)


def set_mode_and_time(file: int, one: ManifestRow) -> None:
    """Set mode and mtime: the row's, or (in a snapshot) a second ago with the content's mark."""
    os.fchmod(file, one.mode & 0o777)
    when = one.mtime_ns
    if not when:
        when = (os.fstat(file).st_mtime_ns // SECOND - 1) * SECOND + content_mark(one.id)
    os.utime(file, ns=(when, when))


def link_unchanged(base: bytes, tree: SafeTree, rows: List[ManifestRow]) -> List[ManifestRow]:
    """Link unchanged files from another tree; return the rows of the others."""
    try:
        with open_tree(base) as old:
            return [one for one in rows if not link_row(old, tree, one)]
    except FileNotFoundError:
        return rows


def link_row(old: SafeTree, tree: SafeTree, one: ManifestRow) -> bool:
    """Link a row's file from another tree, if it is there as it was written."""
    if one.is_link:
        return False
    try:
        name, here = old.open_parent(one.path)
        if not has_row_marks(os.stat(name, dir_fd=here, follow_symlinks=False), one):
            return False
        name, there = tree.open_parent(one.path)
        os.link(name, name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except OSError:  # it is gone, on another file system, or has too many links
        return False
    return True


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
    with open_tree(old, follow=False) as source, open_tree(dest, follow=False) as target:
        for path in sorted(found, key=lambda path: (not path.endswith(CACHE), path)):
            try:
                if not carry_path(source, target, path):
                    stays.append(path)
            except OSError:
                stays.append(path)
    return stays


def carry_path(source: SafeTree, target: SafeTree, path: bytes) -> bool:
    """Move a path to the same place in another tree, and leave a link to it; return whether its
    place was free."""
    folder, there = path.rpartition(b"/")[0], join_path(target.path, path)
    name, here = source.open_parent(path)
    if name == CACHE:
        if (folder and target.kind_at(folder) != stat.S_IFDIR) or target.kind_at(path):
            shutil.rmtree(b"/proc/self/fd/%d/" % here + name)  # 3.8 has no dir_fd for it
        else:
            _, above = target.open_parent(path)
            os.rename(name, name, src_dir_fd=here, dst_dir_fd=above)
        return True
    is_link = source.kind_at(path) == stat.S_IFLNK
    if is_link and os.readlink(name, dir_fd=here) == there:
        return True
    if target.kind_at(path):
        return False
    _, above = target.open_parent(path, make=True)
    os.rename(name, name, src_dir_fd=here, dst_dir_fd=above)
    os.symlink(there, name, dir_fd=here)
    return True


def remove_known(tree: bytes, dest: bytes, rows: Iterable[ManifestRow]) -> bool:
    """Remove from an old tree what the rows know; return whether that was all."""
    files = {one.path for one in rows if not one.is_folder}
    with suppress(FileNotFoundError), open_tree(tree, follow=False) as old:
        for path, folders, names, here in os.fwalk(b".", topdown=False, dir_fd=old.root):
            for name in (*folders, *names):
                below = join_path(path[2:], name) if path[2:] else name
                if below in files or CACHE in below.split(b"/"):
                    remove_entry(name, here)
                else:
                    remove_entry(name, here, link=join_path(dest, below))
    with suppress(OSError):  # not empty: what the host made is not ours to remove
        os.rmdir(tree)
    return not os.path.lexists(tree)


def remove_entry(name: bytes, folder: int, *, link: Optional[bytes] = None) -> None:
    """Remove an empty folder or a file; given a `link`, a link that leads there instead."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        with suppress(OSError):
            os.rmdir(name, dir_fd=folder)
    elif link is None or (stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=folder) == link):
        os.unlink(name, dir_fd=folder)


# ---- copies --------------------------------------------------------------------------------------


def merge_tree(
    tree: SafeTree, dest: SafeTree, rows: Iterable[ManifestRow], names: Mapping[bytes, bytes]
) -> None:
    """Move each file of a tree to its place below `dest`, beside other files; `names` renames the
    topmost."""
    found = plan_moves(dest, rows, names)
    for one, there in found:
        if one.is_folder:
            dest.open_folder(there, make=True)
            continue
        name, here = tree.open_parent(one.path)
        new, above = dest.open_parent(there, make=True)
        os.replace(name, new, src_dir_fd=here, dst_dir_fd=above)
    for one, there in reversed(found):
        if one.is_folder:
            folder = dest.open_folder(there)
            os.fchmod(folder, one.mode & 0o777 | OWNERS)
            os.utime(folder, ns=(one.mtime_ns, one.mtime_ns))


def plan_moves(
    dest: SafeTree, rows: Iterable[ManifestRow], names: Mapping[bytes, bytes]
) -> List[Tuple[ManifestRow, bytes]]:
    """Return each row with its path below `dest`; OSError if a link leads there, or if a folder is
    in a file's place or the reverse."""
    found = []
    for one in rows:
        top, _, rest = one.path.partition(b"/")
        there = names.get(top, top) + (b"/" + rest if rest else b"")
        kind = dest.kind_at(there)
        if kind and (kind == stat.S_IFDIR) != one.is_folder:
            raise place_taken(kind, join_path(dest.path, there))
        found.append((one, there))
    return found


def error_text(error: OSError) -> str:
    """Return the error's text with its path, which may be bytes."""
    path = os.fsdecode(error.filename) + ": " if error.filename else ""
    return path + str(error.strerror or error)
