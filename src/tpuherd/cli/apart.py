"""Run something as a process of its own that outlives the command that began it."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tpuherd.sim.folder import Trouble

#: Called in the new process once it is ready, with what its beginner shall know.
Ready = Callable[[str], None]


def apart(work: Callable[[Ready], None], log: Path) -> str:
    """Begin `work` and return what it said when it was ready; raise what it said instead."""
    sys.stdout.flush()
    sys.stderr.flush()
    ear, mouth = os.pipe()
    if os.fork() == 0:
        os.close(ear)
        alone(work, log, mouth)
    os.close(mouth)
    with open(ear, encoding="utf-8") as stream:
        said = stream.read()
    verdict, _, rest = said.partition("\n")
    if verdict == "ready":
        return rest
    raise Trouble(rest or f"The world ended before it was ready: {log} may say why")


def alone(work: Callable[[Ready], None], log: Path, mouth: int) -> None:
    """The new process: no terminal, no files of its beginner, its words in the log. No return."""
    status = 1
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.closerange(3, mouth)
        os.closerange(mouth + 1, mouth + 1024)

        def ready(message: str) -> None:
            os.write(mouth, f"ready\n{message}".encode())
            os.close(mouth)

        work(ready)
        status = 0
    except Trouble as trouble:
        with contextlib.suppress(OSError):
            os.write(mouth, f"no\n{trouble}".encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
