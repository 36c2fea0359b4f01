"""The processes below this one: Ray's, and the job's command."""

import ctypes
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Dict, Iterable, List, Sequence, Set, Tuple

from tpuherd_host.agent import processes

SUBREAPER = 36
GRACE_S = 3.0  #: for Ray's processes to end
LOOK_S = 0.05
RAYLET = "raylet"
CORE = (RAYLET, "gcs_server")  #: without them a host is no part of the cluster


def adopt_orphans() -> None:
    """What a child leaves behind becomes ours, so that we see it end and can end it."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def core_processes() -> Dict[int, str]:
    """Return the names of Ray's processes on this host that it can't do without, by their ids."""
    found = {}
    for one in processes.all_processes().values():
        if one.parent == os.getpid() and not one.gone:
            name = os.path.basename(processes.command_line(one.pid).partition(" ")[0])
            if name in CORE:
                found[one.pid] = name
    return found


def watch_children() -> int:
    """Return the read end of a pipe that says that a child may have ended."""
    hear, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return hear


def await_news(
    hear: int, lines: Sequence[socket.socket]
) -> Tuple[Dict[int, int], List[socket.socket]]:
    """Return what children have ended, with their status, and on which lines another host spoke."""
    while True:
        ended = reap_children()
        waiting = {line.fileno(): line for line in lines}
        ready, _, _ = select.select([*waiting, hear], [], [], 0 if ended else None)
        if hear in ready:
            os.read(hear, 4096)
        spoken = [waiting[number] for number in ready if number != hear]
        if ended or spoken:
            return ended, spoken


def reap_children() -> Dict[int, int]:
    """Return the children that have ended, with their status."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status


def end_descendants() -> None:
    """End all that was started here: first by TERM, then by KILL."""
    mine = os.getpid()
    for number in (signal.SIGTERM, signal.SIGKILL):
        told: Set[int] = set()
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            reap_children()
            among = processes.all_processes()
            left = processes.with_descendants({mine}, among) - {mine}
            left = {pid for pid in left if not among[pid].gone}
            if not left:
                return
            send_signals(left - told, number)
            told |= left
            time.sleep(LOOK_S)


def send_signals(pids: Iterable[int], *numbers: int) -> None:
    for pid in pids:
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def exit_status(status: int) -> int:
    """The exit status, or the signal as a negative number."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
