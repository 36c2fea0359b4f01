"""Spares the keeper's start what nobody needs of the libraries that take long to load."""

import ctypes
import ctypes.util
import gc
import sys

#: Modules that their users do without where they are not installed: asyncssh's X.509 certificates,
#: which no OpenSSH has, and HTTP/2, for which we never ask. 28 ms.
UNUSED = ("asyncssh.crypto.x509", "h2")


def skip_unused_modules() -> None:
    """Before they are loaded. What is loaded for good is not looked through for garbage: 20 ms."""
    gc.disable()
    ctypes.util.find_library = find_library
    for name in UNUSED:
        sys.modules[name] = None  # type: ignore[assignment]  # it can't be had


def resume_gc() -> None:
    """All is loaded: garbage may come from now on."""
    gc.freeze()
    gc.enable()


def find_library(name: str) -> str | None:
    """The file by which a shared library can be opened.

    While it is loaded asyncssh asks for liboqs. Where that is missing, Python's own search runs
    ldconfig, gcc and ld, twice: 60 ms. To open it is the same question.
    """
    file = f"lib{name}.so"
    try:
        ctypes.CDLL(file)
    except OSError:
        return None
    return file
