"""Run something as a process of its own that outlives the command that began it."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tpuherd_sim.state_dir import WorldError

#: Called in the new process once it is ready, with what its beginner shall print and warn of.
OnReady = Callable[[str, str], None]


def run_detached(work: Callable[[OnReady], None], log: Path) -> tuple[str, str]:
    """Begin `work`; return what it said when it was ready, or raise what it said instead."""
    sys.stdout.flush()
    sys.stderr.flush()
    ear, mouth = os.pipe()
    if os.fork() == 0:
        os.close(ear)
        run_in_child(work, log, mouth)
    os.close(mouth)
    with open(ear, encoding="utf-8") as stream:
        said = json.loads(stream.read() or "{}")
    if "ready" in said:
        return said["ready"], said["warning"]
    raise WorldError(said.get("trouble") or f"The world did not come about: {log} may say why")


def run_in_child(work: Callable[[OnReady], None], log: Path, mouth: int) -> None:
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

        def ready(message: str, warning: str) -> None:
            os.write(mouth, json.dumps({"ready": message, "warning": warning}).encode())
            os.close(mouth)

        work(ready)
        status = 0
    except WorldError as trouble:
        with contextlib.suppress(OSError):
            os.write(mouth, json.dumps({"trouble": str(trouble)}).encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
