"""Read from /proc which processes run and which task they belong to."""

import ctypes
import os
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

#: Variables that mark a process as ours: the agent's folder and the task.
AGENT, MARK = "HERD_AGENT", "HERD_WORK"
PR_SET_NAME = 15


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    ticks: int
    gone: bool  #: a zombie: only its parent can do anything about it


def parse_stat(pid: int, stat: bytes) -> Process:
    """Parse /proc/PID/stat."""
    words = stat.rpartition(b")")[2].split()
    gone = words[0] in (b"Z", b"X")
    return Process(pid, int(words[1]), int(words[3]), int(words[19]), gone)


def find_process(pid: int) -> Optional[Process]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return parse_stat(pid, file.read())
    except (OSError, IndexError, ValueError):
        return None


def all_processes() -> Dict[int, Process]:
    """Return the visible processes by their ids."""
    found = (find_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {one.pid: one for one in found if one is not None}


def is_alive(pid: int, ticks: int) -> bool:
    """Whether the process still runs and is not a later one with the same id."""
    one = find_process(pid) if pid else None
    return one is not None and not one.gone and (not ticks or one.ticks == ticks)


def process_marks(pid: int) -> Tuple[str, str]:
    """Return the agent's folder and the task from a process's environment; empty if unknown."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read(1 << 20)
    except OSError:
        return "", ""
    if b"HERD_WORK=" not in text:
        return "", ""
    rows = dict(word.partition(b"=")[::2] for word in text.split(b"\0"))
    found = (rows.get(name.encode(), b"").decode("utf-8", "replace") for name in (AGENT, MARK))
    agent, work = found
    return agent, work


def marked_task(pid: int, agent: str) -> str:
    """Return the task of this agent that a process belongs to, or ""."""
    whose, work = process_marks(pid)
    return work if whose == agent else ""


def all_marks(agent: str) -> Set[str]:
    """Return the tasks of this agent that have processes."""
    return {marked_task(int(name), agent) for name in os.listdir("/proc") if name.isdigit()} - {""}


def with_descendants(seeds: Set[int], among: Dict[int, Process]) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for one in among.values():
        children.setdefault(one.parent, []).append(one.pid)
    found: Set[int] = set()
    waiting = list(seeds)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def task_processes(agent: str, work: str, leader: int, spare: Iterable[int]) -> List[Process]:
    """Return a task's processes: its session, those with its mark, and their descendants."""
    among = all_processes()
    seeds = {
        one.pid
        for one in among.values()
        if not one.gone
        and ((leader and one.session == leader) or marked_task(one.pid, agent) == work)
    }
    found = with_descendants(seeds, among) - set(spare)
    return [among[pid] for pid in sorted(found) if not among[pid].gone]


def rename_process(name: str) -> None:
    """Show this name instead of Python's in the process table: `pkill python3` spares this process.

    `killall` and `pkill` read the name, `pkill -f` the arguments, which the kernel reads from our
    memory: from field 48 of /proc/self/stat to field 49.
    """
    shown = name.encode()
    try:
        ctypes.CDLL(None).prctl(PR_SET_NAME, shown, 0, 0, 0)
        with open("/proc/self/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        start, end = int(words[45]), int(words[46])
    except (OSError, AttributeError, IndexError):
        return
    if end - start > len(shown):
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, shown, len(shown))


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            text = file.read(4096)
    except OSError:
        return ""
    return text.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def start_time(ticks: int, uptime_s: float, now: float) -> float:
    """Return when a process started, in seconds since 1970."""
    return round(now - uptime_s + ticks / os.sysconf("SC_CLK_TCK"), 2)


def uptime_seconds() -> float:
    with open("/proc/uptime") as file:
        return float(file.read().split()[0])


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
