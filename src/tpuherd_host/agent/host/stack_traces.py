"""Reads the stacks of an attempt's processes by py-spy, from themselves, or from the kernel."""

import os
import re
import shutil
import subprocess
import time
from typing import Any, Dict, List

from tpuherd_host.agent.processes import all_processes, marked_task
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.agent.threaded_rpc import ThreadedCall

PROCESSES_MAX = 64
TEXT_MAX = 64 << 10
SPY_S = 10.0
THREADS_MAX = 64
#: The file into which a program with tpuherd_host.train writes its frames at a signal.
FRAMES = re.compile(r"/memfd:herd-frames-(\d+)\b")
FRAMES_S, QUIET_S = 3.0, 0.2


def dump_stacks(call: ThreadedCall) -> Dict[str, Any]:
    """Return the stacks of every process that has the attempt's mark."""
    attempt = call.content.get("attempt")
    if not isinstance(attempt, str) or not attempt:
        raise CallRefused("unfit", "attempt is missing")
    paths = call.paths
    mine = [pid for pid in sorted(all_processes()) if marked_task(pid, paths.folder) == attempt]
    described: List[Dict[str, Any]] = []
    for pid in mine[:PROCESSES_MAX]:
        path = paths.environment.get("PATH", os.defpath)
        described.append(
            {"pid": pid, "command": command_line(pid), "text": stack_text(pid, path)[-TEXT_MAX:]}
        )
    return {"processes": described, "more": max(0, len(mine) - PROCESSES_MAX)}


def command_line(pid: int) -> str:
    return read_proc_file(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:500]


def stack_text(pid: int, path: str) -> str:
    """Return Python's frames if available, and each thread's state in the kernel."""
    # The py-spy of a virtual environment is beside its python.
    own = os.path.dirname(link_target(f"/proc/{pid}/exe"))
    spy = shutil.which("py-spy", path=f"{path}:{venv_bin(pid)}:{own}")
    text = ""
    if spy is not None:
        try:
            done = subprocess.run(
                [spy, "dump", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SPY_S,
            )
            text = done.stdout.decode("utf-8", "replace")
            if done.returncode == 0:
                return text
        except (OSError, subprocess.TimeoutExpired) as error:
            text = f"py-spy: {error}\n"
    return text + own_frames(pid) + kernel_stacks(pid)


def own_frames(pid: int) -> str:
    """Return the frames as the program itself writes them; "" if it does not."""
    folder = f"/proc/{pid}/fd"
    try:
        links = {f"{folder}/{file}": link_target(f"{folder}/{file}") for file in os.listdir(folder)}
        for file, target in links.items():
            found = FRAMES.match(target)
            if found:
                before = os.stat(file).st_size
                os.kill(pid, int(found.group(1)))
                return read_growth(file, before)
    except OSError:
        pass  # it ended just now, or belongs to another user
    return ""


def read_growth(file: str, before: int) -> str:
    """Return what another process appends to a file, once it stops growing.

    A signal handler there writes it and cannot signal its end, and one cannot wait for a file in
    memory: so this polls, in a thread of its own, for at most FRAMES_S.
    """
    size, end = before, time.monotonic() + FRAMES_S
    while time.monotonic() < end:
        time.sleep(QUIET_S)
        now = os.stat(file).st_size
        if before < size == now:
            break
        size = now
    return read_proc_file(file)[before:]


def venv_bin(pid: int) -> str:
    """Return the bin folder of the process's virtual environment, from its environment."""
    for word in read_proc_file(f"/proc/{pid}/environ").split("\0"):
        if word.startswith("VIRTUAL_ENV="):
            return os.path.join(word.partition("=")[2], "bin")
    return ""


def kernel_stacks(pid: int) -> str:
    """Return each thread's name, state, wait channel, and kernel stack if we may read it."""
    folder = f"/proc/{pid}/task"
    lines = []
    try:
        threads = sorted(os.listdir(folder), key=int)
    except OSError:
        return "it is gone\n"
    for thread in threads[:THREADS_MAX]:
        place = f"{folder}/{thread}"
        stat = read_proc_file(f"{place}/stat").rpartition(")")[2].split()
        state = stat[0] if stat else "?"
        waits = read_proc_file(f"{place}/wchan").strip() or "0"
        name = read_proc_file(f"{place}/comm").strip()
        lines.append(f"thread {thread} {name}: state {state}, waits in {waits}")
        lines += [f"    {line}" for line in read_proc_file(f"{place}/stack").splitlines()]
    return "\n".join(lines) + "\n"


def read_proc_file(path: str) -> str:
    """Return a file of /proc; "" if we may not read it."""
    try:
        with open(path, errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def link_target(path: str) -> str:
    """Return the target of a link; "" if we may not see it."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
