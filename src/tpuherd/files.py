"""Writes files atomically and locks them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_native_id


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
