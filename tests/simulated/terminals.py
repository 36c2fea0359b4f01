"""Runs a command in a terminal of a given width and returns what is shown at the end."""

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Mapping


def run_in_terminal(
    *words: str, environ: Mapping[str, str] = os.environ, columns: int = 80, typed: bytes = b""
) -> tuple[int, str]:
    """Its exit status, and all that it wrote."""
    pid, file = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execvpe(
            sys.executable, [sys.executable, "-m", "tpuherd.launcher", *words], dict(environ)
        )
    if typed:
        os.write(file, typed)
    seen = bytearray()
    try:
        while piece := os.read(file, 1 << 16):
            seen += piece
    except OSError:
        pass  # the other end is closed
    os.close(file)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, seen.decode(errors="replace").replace("\r\n", "\n")
