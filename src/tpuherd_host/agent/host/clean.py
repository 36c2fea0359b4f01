"""Ends what earlier tasks left behind, and frees the chips' lock: verbs `holders` and `clean`."""

import os
import signal
import subprocess
import threading
from typing import Any, Callable, Dict, List, Set

from tpuherd_host.agent import processes
from tpuherd_host.agent.host import chip_users
from tpuherd_host.agent.state_machine.messages import TasksCleaned
from tpuherd_host.agent.state_machine.state import COMMAND
from tpuherd_host.agent.state_machine.transition import parse_fields
from tpuherd_host.agent.threaded_rpc import ThreadedCall

KNOWN_S = 5.0
GRACE_S = 10.0
LOOK_S = 0.1
GONE_S = 5.0
TPU_LOGS = "/tmp/tpu_logs"
SUDO_S = 10.0
HOLDERS_SHOWN, COMMAND_SHOWN = 3, 100


def list_chip_users(call: ThreadedCall) -> Dict[str, Any]:
    """List who uses the chips, and which of them are ours."""
    rows = chip_users.all_chip_users(call.paths.home)
    return {**mark_ours(rows, call), "devices": chip_users.chip_devices()}


def mark_ours(rows: List[Dict[str, Any]], call: ThreadedCall) -> Dict[str, Any]:
    for row in rows:
        row["ours"] = row.pop("agent") == call.paths.folder
        row["work"] = row["work"] if row["ours"] else ""
    return {"holders": rows}


def clean_host(call: ThreadedCall) -> Dict[str, Any]:
    """End leftovers, remove lock files that no process holds, make libtpu's log folder writable."""
    asked = parse_fields(call.content, all=bool, grace_s=float)
    everything = asked.get("all", False)
    works = call.paths.state().works
    live = {id for id, work in works.items() if work.is_live}
    wanted = find_leftovers(call.paths.folder, set() if everything else live)
    if everything:
        rows = chip_users.all_chip_users(call.paths.home)
        wanted |= {int(row["pid"]) for row in rows if row["pid"]}
    wanted -= family_of_agent()
    announce_cleaning(call, wanted, live)
    ended = [describe_process(pid, call.paths.folder) for pid in sorted(wanted)]
    left = end_processes(wanted, asked.get("grace_s", GRACE_S), call)
    return {
        "ended": [row for row in ended if row["pid"] not in left],
        "left": [row for row in ended if row["pid"] in left],
        "removed": remove_free_locks(call.paths.home),
        "mended": fix_log_folder(),
        "holders": list_chip_users(call)["holders"],
    }


def free_chips(call: ThreadedCall) -> Dict[str, Any]:
    """End what earlier tasks left on the chips, and say who else uses them: verb `chips.free`.

    A task that has ended but whose processes hold a chip would make the next program fail. What a
    user runs now is not ended: the caller waits for it.
    """
    live = {id: work.kind for id, work in call.paths.state().works.items() if work.is_live}
    rows = chip_users.all_chip_users(call.paths.home)
    marked = {row["pid"] for row in rows if row["agent"] == call.paths.folder and row["work"]}
    left = marked & find_leftovers(call.paths.folder, set(live))
    ended = [describe_process(pid, call.paths.folder) for pid in sorted(left)]
    if left:
        end_processes(left, GRACE_S, call)
        rows = chip_users.all_chip_users(call.paths.home)
    return {
        "ended": [f"{row['command']} (pid {row['pid']})" for row in ended][:HOLDERS_SHOWN],
        "held": describe_holders(mark_ours(rows, call)["holders"], live),
    }


def describe_holders(rows: List[Dict[str, Any]], live: Dict[str, str]) -> str:
    """Return who uses the chips besides our attempts, as a sentence; "" if they are free."""
    found: Dict[Any, Dict[str, Any]] = {}
    for row in rows:
        if live.get(row["work"], COMMAND) == COMMAND:
            found.setdefault(row["pid"], row)
    parts = []
    for pid, row in found.items():
        if pid is None:
            parts.append(f"a process that this login cannot see holds {row['device']}")
            continue
        how = ", a command of `herd exec`," if live.get(row["work"]) == COMMAND else ""
        command = row["command"][:COMMAND_SHOWN] or "a program"
        parts.append(f"`{command}` (pid {pid} of {row['user']}){how} holds {row['device']}")
    more = f" and {len(parts) - HOLDERS_SHOWN} more" if len(parts) > HOLDERS_SHOWN else ""
    return "; ".join(parts[:HOLDERS_SHOWN]) + more


def announce_cleaning(call: ThreadedCall, wanted: Set[int], live: Set[str]) -> None:
    """Tell the state machine first, so that these ends do not count as failures."""
    marked = {processes.marked_task(pid, call.paths.folder) for pid in wanted}
    works = tuple(sorted(live & marked))
    if not works:
        return
    one = call.paths.state().connections.get(call.connection)
    who = f" of {one.who}" if one is not None and one.who else ""
    call.paths.post(TasksCleaned(works, f"ended by herd clean{who}"))

    def known() -> bool:
        now = call.paths.state().works
        return all(work is None or not work.is_live or work.stopped for work in map(now.get, works))

    wait_until(known, KNOWN_S, call)


def find_leftovers(agent: str, spared: Set[str]) -> Set[int]:
    """Return processes with our mark whose task is not spared, and their descendants."""
    among = processes.all_processes()
    marks = {pid: processes.marked_task(pid, agent) for pid in among}
    spare = processes.with_descendants(
        {pid for pid, work in marks.items() if work in spared}, among
    )
    seeds = {pid for pid, work in marks.items() if work and work not in spared}
    found = processes.with_descendants(seeds, among) - spare
    return {pid for pid in found if not among[pid].gone}


def family_of_agent() -> Set[int]:
    """Return the agent, its ancestors and its supervisor, the one child without a mark."""
    spared = {0, 1}
    among = processes.all_processes()
    pid = os.getpid()
    while pid in among:
        spared.add(pid)
        pid = among[pid].parent
    children = {one.pid for one in among.values() if one.parent == os.getpid()}
    return spared | {pid for pid in children if not processes.process_marks(pid)[1]}


def describe_process(pid: int, agent: str) -> Dict[str, Any]:
    return {
        "pid": pid,
        "command": processes.command_line(pid),
        "work": processes.marked_task(pid, agent),
        "user": chip_users.process_user(pid),
    }


def end_processes(wanted: Set[int], grace_s: float, call: ThreadedCall) -> Set[int]:
    """Send TERM, wait, send KILL; return those that still run.

    The oldest come first: a shell whose child ends before it would go on with its next command.
    """
    born = {pid: one.ticks for pid in wanted for one in [processes.find_process(pid)] if one}

    def left() -> Set[int]:
        return {pid for pid, ticks in born.items() if processes.is_alive(pid, ticks)}

    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, GONE_S)):
        for pid in sorted(left(), key=lambda pid: (born[pid], pid)):  # a shell before its child
            send_signal(pid, number)
        wait_until(lambda: not left(), patience_s, call)
    return left()


def send_signal(pid: int, number: int) -> None:
    """Signal a process, by sudo if it belongs to another user."""
    try:
        os.kill(pid, number)
    except PermissionError:
        run_sudo("kill", f"-{int(number)}", str(pid))
    except ProcessLookupError:
        pass  # it ended meanwhile


def wait_until(over: Callable[[], bool], patience_s: float, call: ThreadedCall) -> None:
    pause = threading.Event()
    for _ in range(int(patience_s / LOOK_S) + 1):
        if over():
            return
        call.raise_if_cut()
        pause.wait(LOOK_S)


def run_sudo(*words: str) -> bool:
    """Run a command as root if sudo needs no password; return whether it succeeded."""
    try:
        done = subprocess.run(
            ["sudo", "-n", *words],
            capture_output=True,
            timeout=SUDO_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def remove_free_locks(home: str) -> List[str]:
    """Remove lock files that no process holds: libtpu takes the file itself for a lock."""
    removed = []
    for path in chip_users.lock_files(home):
        if chip_users.lock_holder(path) is not None:
            continue
        try:
            os.unlink(path)
        except OSError:
            if not run_sudo("rm", "-f", path):
                continue
        removed.append(path)
    return removed


def fix_log_folder() -> List[str]:
    """Make root's log folder writable: otherwise libtpu fails to log for other users."""
    if not os.path.isdir(TPU_LOGS) or os.access(TPU_LOGS, os.W_OK):
        return []
    try:
        os.chmod(TPU_LOGS, 0o1777)
    except OSError:
        if not run_sudo("chmod", "1777", TPU_LOGS):
            return []
    return [TPU_LOGS]
