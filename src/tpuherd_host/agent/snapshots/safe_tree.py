"""A folder to write below, never through a link.

Every folder on the way is opened by its name in the folder above it, which is open already, and a
link is refused at each step. So it does not matter what an earlier copy left there, nor whether
folders and links are exchanged meanwhile: nothing outside of the folder changes.
"""

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import Iterator, Tuple

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def join_path(tree: bytes, path: bytes) -> bytes:
    return tree + b"/" + path if path else tree


class SafeTree:
    """A folder that is held open, and the folder below it that was used last."""

    def __init__(self, root: int, path: bytes) -> None:
        self.root = root
        self.path = path  #: for messages and for the targets of links
        self._below, self._last = b"", root

    def open_folder(self, below: bytes, *, make: bool = False) -> int:
        """Return the descriptor of a folder of this tree, valid until the next call."""
        if below == self._below:
            return self._last
        self.close_last()
        way = b""
        try:
            for name in below.split(b"/") if below else ():
                way = join_path(way, name) if way else name
                step = enter_folder(self._last, name, join_path(self.path, way), make=make)
                self.close_last()
                self._last = step
        except BaseException:
            self.close_last()
            raise
        self._below = below
        return self._last

    def open_parent(self, path: bytes, *, make: bool = False) -> Tuple[bytes, int]:
        """Return the last name of a path and the descriptor of the folder that it is in."""
        above, _, name = path.rpartition(b"/")
        return name, self.open_folder(above, make=make)

    def kind_at(self, path: bytes) -> int:
        """Return the kind of what is at a path; 0 for nothing."""
        try:
            name, folder = self.open_parent(path)
            return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return 0

    def close_last(self) -> None:
        if self._last != self.root:
            os.close(self._last)
        self._below, self._last = b"", self.root


def enter_folder(above: int, name: bytes, path: bytes, *, make: bool = False) -> int:
    """Open a folder in an open folder; OSError with a sentence if a link or a file is there."""
    if name in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "is not a path in a tree", os.fsdecode(path))
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o777, dir_fd=above)
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None
    found = os.stat(name, dir_fd=above, follow_symlinks=False)
    raise place_taken(stat.S_IFMT(found.st_mode), path)


def place_taken(kind: int, path: bytes) -> OSError:
    """Return the error for a path where something of this kind is in the way."""
    if kind == stat.S_IFLNK:
        sentence = "is a link, and nothing is written through a link; move it away and try again"
        return OSError(errno.ELOOP, sentence, os.fsdecode(path))
    sentence = "is a folder" if kind == stat.S_IFDIR else "is no folder"
    return OSError(errno.EEXIST, sentence, os.fsdecode(path))


@contextmanager
def open_tree(path: bytes, *, follow: bool = True) -> Iterator[SafeTree]:
    """Hold a folder open. The way to one that the user has named may be a link; the resolved path
    of a tree of ours is to be opened without `follow`."""
    root = os.open(path, FOLDER if follow else FOLDER | os.O_NOFOLLOW)
    with hold_open(root, path) as tree:
        yield tree


@contextmanager
def open_subtree(tree: SafeTree, name: bytes) -> Iterator[SafeTree]:
    """Hold a folder in a tree open, which is made if it is missing."""
    path = join_path(tree.path, name)
    with hold_open(enter_folder(tree.root, name, path, make=True), path) as below:
        yield below


@contextmanager
def hold_open(root: int, path: bytes) -> Iterator[SafeTree]:
    tree = SafeTree(root, path)
    try:
        yield tree
    finally:
        tree.close_last()
        os.close(root)
