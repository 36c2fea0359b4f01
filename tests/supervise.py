"""Runs a program, and ends what it left when it ends or is killed: `tests/supervise.py PROGRAM …`

Tests start worlds, engines and servers that are meant to outlive whoever started them. On Linux
all of them become children of this process when their own parent is gone; what is left at the end
gets SIGTERM, and SIGKILL after five seconds. It is named if the program ended by itself, as a test
forgot it. Temporary files are in one folder, which is removed unless the program itself said that
it failed. Elsewhere the program only runs.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  #: of prctl
GRACE_S = 5.0
SHOWN = 200  #: characters of a command line


def main(words: Sequence[str]) -> int:
    if sys.platform != "linux":
        return subprocess.call(words)
    prctl = ctypes.CDLL(None).prctl
    prctl(SET_CHILD_SUBREAPER, 1)
    prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    signal.signal(signal.SIGINT, lambda *_: None)  # the program has got it too, from the terminal
    folder = Path(tempfile.mkdtemp(prefix="herd-tests-"))
    folder.chmod(0o711)  # simulated hosts of other users have their files below
    program = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(folder)})
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(program.pid, number))
    status = wait_for(program.pid)
    left = list(describe_descendants()) if status >= 0 else []
    end_descendants()
    for line in left:
        print(f"was left by what ran, and is ended: {line}", file=sys.stderr)
    if status == 1:
        print(f"temporary files are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status


def wait_for(pid: int) -> int:
    """Return the exit status of a child; what else ends meanwhile leaves the process table."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def descendants(pid: int) -> Iterator[int]:
    """Find all processes below a process, the nearest first."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return  # it has just ended
    yield from found
    for one in found:
        yield from descendants(one)


def describe_descendants() -> Iterator[str]:
    for pid in descendants(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words:  # one that has ended has none
            yield f"{pid} {words[:SHOWN]}"


def end_descendants() -> None:
    """Ask all to end, and kill those that still live after a while."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    number, end = signal.SIGTERM, monotonic() + GRACE_S
    while found := list(descendants(os.getpid())):
        for pid in found:
            try:
                os.kill(pid, number)
            except OSError:
                continue
        signal.sigtimedwait({signal.SIGCHLD}, 0.2)
        while reap():
            pass
        if monotonic() > end:
            number = signal.SIGKILL


def reap() -> bool:
    """Take the status of a child that has ended; whether there was one."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
