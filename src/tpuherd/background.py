"""Starts modules of ours as processes that outlive us, with their output in a file."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the launcher imports this in a hurry
    from collections.abc import Mapping, Sequence

PASSED = 3  #: the descriptor of the file that the new process gets from us
FILES_MAX = 4096


def start_process(
    words: "Sequence[str]", environ: "Mapping[str, str]", *, log: str, passed: int
) -> None:
    """Start `python -m WORDS` in a session of its own; it has the file `passed` as PASSED."""
    actions = [
        (os.POSIX_SPAWN_DUP2, passed, PASSED),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if passed == PASSED:  # copying it onto itself lets it be inherited on Linux, but not on macOS
        os.set_inheritable(passed, True)
    program = [sys.executable, "-P", "-m", *words]
    os.posix_spawn(program[0], program, dict(environ), file_actions=actions, setsid=True)


def start_and_hear(words: "Sequence[str]", environ: "Mapping[str, str]", *, log: str) -> bytes:
    """Start a process and return what it writes to PASSED until it closes it, or ends."""
    ear, mouth = os.pipe()
    with open(ear, "rb") as stream:
        try:
            start_process(words, environ, log=log, passed=mouth)
        finally:
            os.close(mouth)
        return stream.read()


def close_inherited_files() -> None:
    """Keep only PASSED and the standard files; our own children get no PASSED."""
    os.closerange(PASSED + 1, FILES_MAX)
    os.set_inheritable(PASSED, False)
