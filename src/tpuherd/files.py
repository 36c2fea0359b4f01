"""Writes files atomically and locks them."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_native_id

from tpuherd.errors import NotAllowed

OURS = "tpuherd"  #: the name of the folders that hold all that herd keeps on this machine
SPARED_MAX, SPARED_PART = 256 << 20, 20  #: logs leave free a twentieth of the disk, up to this


def atomic_write(file: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace a file by one that only its owner can read; readers see the old or the new content.

    With `durable` the content is synced to disk before it replaces the old one.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}-{get_native_id()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def make_private_folder(folder: Path) -> None:
    """Make a folder that only this user can enter, as well as herd's own above it.

    Others lose access to existing ones, too. NotAllowed: one is another user's; raises OSError.
    """
    folders = [folder, *folder.parents]
    for one in () if folder.is_dir() else reversed(folders):
        one.mkdir(mode=0o700, exist_ok=True)
    ours = next((at for at, one in enumerate(folders) if one.name == OURS), 0)
    for one in folders[: ours + 1]:
        about = one.stat()
        if about.st_uid not in (os.getuid(), 0):
            hint = "move it away, or use another HOME"
            raise NotAllowed(f"{one} belongs to another user, who could read it", hint=hint)
        if about.st_uid == os.getuid() and about.st_mode & 0o077:
            one.chmod(0o700)


def sync_file(file: Path) -> None:
    """Sync a file, or a folder with the renames in it, to disk."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def file_lock(file: Path) -> Iterator[None]:
    """Wait for the exclusive lock of a file and hold it during the block."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(file: Path) -> int | None:
    """A descriptor that holds the file's lock alone; None if another has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def check_free_disk(folder: Path) -> None:
    """Raise OSError if what programs print may not take more of this disk."""
    disk = os.statvfs(folder)
    spared = min(SPARED_MAX, disk.f_blocks * disk.f_frsize // SPARED_PART)
    if disk.f_bavail * disk.f_frsize < spared:
        raise OSError(errno.ENOSPC, "little of the disk is free")
