"""The token of the page: one for each user of a machine, kept so that its address stays valid.

Whoever can read the file is this user. Delete it to make every address invalid: the next `herd ui`
writes a new one. Cookies are of one process.
"""

import os
import re
import secrets
from pathlib import Path

from tpuherd.errors import NotAllowed
from tpuherd.files import atomic_write, file_lock, make_private_folder

NAME = "ui-token"
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def kept_token(folder: Path) -> str:
    """Return the token in this folder; write a new one if there is none that others can't read."""
    file = folder / NAME
    try:
        make_private_folder(folder)
        with file_lock(folder / f"{NAME}.lock"):
            found = read_private_file(file)
            if TOKEN.fullmatch(found) is None:
                found = secrets.token_urlsafe(32)
                atomic_write(file, f"{found}\n")
            return found
    except OSError as error:
        raise NotAllowed(f"{file} can't be used ({error.strerror})") from error


def read_private_file(file: Path) -> str:
    """Return the text of a file that only its owner can read, else ""."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with open(descriptor, "rb") as stream:
        about = os.fstat(descriptor)
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            return ""
        return stream.read(200).decode(errors="replace").strip()
