"""Looks for shared libraries without a compiler: imported before what imports asyncssh.

While it is loaded asyncssh asks for liboqs. Where that is missing, Python's own search runs
ldconfig, gcc and ld, twice: 60 ms of the first command's time. To open it is the same question.
"""

import ctypes
import ctypes.util


def find_library(name: str) -> str | None:
    """The file by which it can be opened."""
    file = f"lib{name}.so"
    try:
        ctypes.CDLL(file)
    except OSError:
        return None
    return file


ctypes.util.find_library = find_library
