"""Finds who uses the chips: processes with open devices or libtpu's lock."""

import fcntl
import json
import os
import pwd
import re
import struct
import subprocess
import sys
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from tpuherd_host.agent import processes

ACCEL = re.compile(r"accel\d+")
NUMBER = re.compile(r"\d+")
FLOCK = struct.Struct("hhqqi4x")
LOCKS = "/tmp/libtpu_lockfile", "/tmp/libtpu_lock_{uid}/libtpu_lockfile", "{home}/.libtpu_lockfile"
SUDO_S = 10.0


def chip_devices() -> List[str]:
    found = []
    for folder, pattern in (("/dev", ACCEL), ("/dev/vfio", NUMBER)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        paths = (os.path.join(folder, name) for name in names if pattern.fullmatch(name))
        found += [path for path in paths if not os.path.isdir(path)]
    return found


def lock_files(home: str) -> List[str]:
    paths = [path.format(uid=os.getuid(), home=home) for path in LOCKS]
    return [path for path in paths if os.path.exists(path)]


def find_openers(files: Iterable[str]) -> Iterator[Tuple[str, int]]:
    """Return which process has which file or socket open, of those that we may inspect."""
    wanted = set(files)
    for name in os.listdir("/proc") if wanted else ():
        if not name.isdigit():
            continue
        folder = f"/proc/{name}/fd"
        try:
            targets = {os.readlink(os.path.join(folder, file)) for file in os.listdir(folder)}
        except OSError:
            continue
        for path in sorted(wanted & targets):
            yield path, int(name)


def lock_holder(path: str) -> Optional[int]:
    """Return the process that holds a lock on the file; 0 if it is hidden, None if it is free."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return listed_holder(path)
    try:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def listed_holder(path: str) -> Optional[int]:
    """Find the lock's holder in /proc/locks, for a file that we may not open."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    return parse_lock_holder(lines, inode)


def parse_lock_holder(lines: Iterable[str], inode: int) -> Optional[int]:
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "POSIX" and words[5].endswith(f":{inode}"):
            return max(0, int(words[4]))
    return None


def find_users(home: str) -> List[Tuple[str, int]]:
    """Return path and process of all visible users."""
    return [*find_openers(chip_devices()), *find_lock_holders(home)]


def find_lock_holders(home: str) -> Iterator[Tuple[str, int]]:
    for path in lock_files(home):
        pid = lock_holder(path)
        if pid is not None:
            yield path, pid


def process_user(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        return pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        return ""


def describe_users(found: Iterable[Tuple[str, int]]) -> List[Dict[str, Any]]:
    """Add user, command and start time of each process."""
    uptime_s, now = processes.uptime_seconds(), time.time()
    known: Dict[int, Dict[str, Any]] = {}
    rows = []
    for path, pid in found:
        if pid not in known:
            known[pid] = describe_holder(pid, uptime_s, now)
        rows.append({"device": path, **known[pid]})
    return rows


def describe_holder(pid: int, uptime_s: float, now: float) -> Dict[str, Any]:
    """Describe a process; 0 is one that is hidden."""
    one = processes.find_process(pid) if pid else None
    agent, work = processes.process_marks(pid) if pid else ("", "")
    return {
        "pid": pid or None,
        "user": process_user(pid) if pid else "",
        "command": processes.command_line(pid) if pid else "",
        "since": processes.start_time(one.ticks, uptime_s, now) if one else None,
        "agent": agent,
        "work": work,
    }


def print_all() -> int:
    """Print JSON for an agent that runs this by sudo."""
    json.dump(describe_users(find_users(os.path.expanduser("~"))), sys.stdout)
    return 0


def all_chip_users(home: str) -> List[Dict[str, Any]]:
    """Include other users' processes if sudo needs no password."""
    if os.getuid() == 0 or not (chip_devices() or lock_files(home)):
        return describe_users(find_users(home))
    words = ["sudo", "-n", sys.executable, "-I", "-S", sys.argv[0], "holders"]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            timeout=SUDO_S,
            stdin=subprocess.DEVNULL,
        )
        rows: List[Dict[str, Any]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return describe_users(find_users(home))
    mine = describe_users((path, pid) for path, pid in find_users(home) if path.startswith(home))
    return rows + [row for row in mine if row not in rows]
