"""Gathers what `herd check` judges on a host: the verb `check`. Nothing is changed."""

import glob
import os
import pwd
import resource
import time
from typing import Any, Callable, Dict, Iterable, List, Set, Tuple

from tpuherd_host.agent import processes
from tpuherd_host.agent.host import (
    chip_users,
    clean,
    host_facts,
    listeners,
    login_settings,
    metadata_identity,
    python_versions,
)
from tpuherd_host.agent.metadata_requests import server_address
from tpuherd_host.agent.state_machine.transition import parse_fields
from tpuherd_host.agent.threaded_rpc import ThreadedCall

ROWS_MAX = 50
COMMAND_MAX = 200
BIGGEST = 3  #: processes, by memory
PAGE = os.sysconf("SC_PAGE_SIZE")
#: Lock files of other users, which libtpu of ours does not open but a reader may want to know.
FOREIGN_LOCKS = "/tmp/libtpu_lock_*/libtpu_lockfile"
APT_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
THREADS_AT, PAGES_AT = 17, 21  #: words of /proc/PID/stat behind the name

Row = Dict[str, Any]


def collect_check_facts(call: ThreadedCall) -> Row:
    """Return all facts; a section that fails is missing, and `failed` says why."""
    found: Row = {}
    failed: Dict[str, str] = {}
    for name, gather in SECTIONS.items():
        call.raise_if_cut()
        try:
            found[name] = gather(call)
        except (OSError, ValueError, LookupError, RuntimeError) as error:
            failed[name] = f"{type(error).__name__}: {error}"[:COMMAND_MAX]
    return {**found, "failed": failed}


def list_disks(call: ThreadedCall) -> List[Row]:
    """Return the space of the file systems that programs write to, each once."""
    rows, seen = [], set()
    for path in ("/", call.paths.home, "/tmp", "/dev/shm"):
        try:
            device, space = os.stat(path).st_dev, os.statvfs(path)
        except OSError:
            continue
        if device not in seen:
            seen.add(device)
            rows.append({"path": path, "files": space.f_files, **host_facts.disk_space(path)})
    return rows


def list_locks(call: ThreadedCall) -> List[Row]:
    """Return libtpu's lock files with their owners and their true holders."""
    ours = chip_users.lock_files(call.paths.home)
    rows = []
    for path in [*ours, *(one for one in sorted(glob.glob(FOREIGN_LOCKS)) if one not in ours)]:
        try:
            about = os.stat(path)
        except OSError:
            continue
        pid = chip_users.lock_holder(path)
        rows.append(
            {
                "path": path,
                "owner": user_name(about.st_uid),
                "ours": path in ours,
                "usable": os.access(path, os.R_OK | os.W_OK),
                "held": pid is not None,
                **describe_pid(pid or 0, call.paths.folder),
            }
        )
    return rows[:ROWS_MAX]


def list_leftovers(call: ThreadedCall) -> List[Row]:
    """Return the processes that ended tasks of ours left behind."""
    live = {id for id, work in call.paths.state().works.items() if work.is_live}
    found = clean.find_leftovers(call.paths.folder, live) - clean.family_of_agent()
    return [describe_pid(pid, call.paths.folder) for pid in sorted(found)[:ROWS_MAX]]


def list_holders(call: ThreadedCall) -> List[Row]:
    """Return who has chips open, with the parents: a fork keeps what its parent has open."""
    rows = []
    for row in clean.list_chip_users(call)["holders"][:ROWS_MAX]:
        one = processes.find_process(row["pid"]) if row["pid"] else None
        row["command"] = row["command"][:COMMAND_MAX]
        rows.append({**row, "parent": one.parent if one else 0})
    return rows


def list_tasks(call: ThreadedCall) -> List[Row]:
    """Return the tasks that run."""
    works = call.paths.state().works.values()
    live = [one for one in works if one.is_live][:ROWS_MAX]
    return [
        {"id": one.id, "kind": one.kind, "title": one.title[:COMMAND_MAX], "slot": one.slot}
        for one in live
    ]


def list_ports(call: ThreadedCall) -> List[Row]:
    """Return who listens at the ports that the caller names."""
    asked = parse_fields(call.content, ports=list).get("ports", [])
    ports = {port for port in asked[:ROWS_MAX] if isinstance(port, int)}
    rows = listeners.all_listeners(ports)[:ROWS_MAX]
    for row in rows:
        row["ours"] = row.pop("agent") == call.paths.folder
        row["work"] = row["work"] if row["ours"] else ""
        row["command"] = row["command"][:COMMAND_MAX]
    return rows


def list_biggest(call: ThreadedCall) -> Row:
    """Return the processes with most memory, and how many threads there are."""
    sizes: List[Tuple[int, int]] = []
    threads = 0
    for name in os.listdir("/proc"):
        words = stat_words(name) if name.isdigit() else []
        if len(words) > PAGES_AT:
            threads += int(words[THREADS_AT])
            sizes.append((int(words[PAGES_AT]) * PAGE, int(name)))
    sizes.sort(reverse=True)
    return {
        "threads": threads,
        "threads_max": threads_limit(),
        "files_max": limit_value(resource.RLIMIT_NOFILE),
        "biggest": [
            {"bytes": size, **describe_pid(pid, call.paths.folder)} for size, pid in sizes[:BIGGEST]
        ],
    }


def stat_words(pid: str) -> List[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def threads_limit() -> int:
    """Return the lowest of the limits on threads; 0 if there is none."""
    found = [limit_value(resource.RLIMIT_NPROC)] if os.getuid() else []
    for path in ("/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max"):
        text = host_facts.read_text(path)
        found += [int(text)] if text.isdigit() else []
    return min(filter(None, found), default=0)


def limit_value(kind: int) -> int:
    """Return a soft limit; 0 if there is none."""
    soft = resource.getrlimit(kind)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def collect_settings(call: ThreadedCall) -> Row:
    found = login_settings.find_settings(call.paths.home, call.paths.environment)
    return {
        "variables": login_settings.settings_rows(found),
        "preloads": login_settings.find_preloads(found),
    }


def collect_wandb(call: ThreadedCall) -> Row:
    """Return where a key is, and which tasks that run have one; never a key itself."""
    live = {id for id, work in call.paths.state().works.items() if work.is_live}
    return {
        "logins": login_settings.wandb_logins(call.paths.home, call.paths.environment),
        "tasks": sorted(tasks_with_key(live, call.paths.folder))[:ROWS_MAX],
    }


def tasks_with_key(live: Iterable[str], folder: str) -> Iterable[str]:
    wanted = set(live)
    found: Set[str] = set()
    for pid in processes.all_processes() if wanted else ():
        work = processes.marked_task(pid, folder)
        if work in wanted - found and login_settings.has_wandb_key(read_environ(pid)):
            found.add(work)
    return found


def read_environ(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def collect_pythons(call: ThreadedCall) -> List[Row]:
    given = parse_fields(call.content, pythons=list).get("pythons", [])
    names = [name for name in given if isinstance(name, str)]
    return python_versions.find_pythons(call.paths.home, call.paths.environment, names)


def collect_identity(call: ThreadedCall) -> Row:
    told = metadata_identity.read_metadata(server_address(call.paths.environment))
    libc = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "")
    release = host_facts.read_text("/etc/os-release")
    return {
        "user": user_name(os.getuid()),
        "metadata": told,
        "addresses": metadata_identity.own_addresses(),
        "image": metadata_identity.image_facts(release, libc, told["tpu_env"]),
    }


def collect_apt(call: ThreadedCall) -> Row:
    """Return who holds apt's lock; an empty row if nobody does."""
    for path in APT_LOCKS:
        pid = chip_users.listed_holder(path)
        if pid is not None:
            words = stat_words(str(pid))
            state = words[0].decode("ascii", "replace") if words else ""
            return {"path": path, "state": state, **describe_pid(pid, call.paths.folder)}
    return {}


def collect_logs(_: ThreadedCall) -> Row:
    """Return whether libtpu can write its logs."""
    there = os.path.isdir(clean.TPU_LOGS)
    return {"usable": not there or os.access(clean.TPU_LOGS, os.W_OK)}


def describe_pid(pid: int, folder: str) -> Row:
    """Return a process as reports show it; pid 0 is one that we can't see."""
    one = processes.find_process(pid) if pid else None
    since = None
    if one is not None:
        since = processes.start_time(one.ticks, processes.uptime_seconds(), time.time())
    return {
        "pid": pid or None,
        "user": chip_users.process_user(pid) if pid else "",
        "command": processes.command_line(pid)[:COMMAND_MAX] if pid else "",
        "work": processes.marked_task(pid, folder) if pid else "",
        "since": since,
    }


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


SECTIONS: Dict[str, Callable[[ThreadedCall], Any]] = {
    "host": host_facts.collect_facts,
    "disks": list_disks,
    "locks": list_locks,
    "leftovers": list_leftovers,
    "holders": list_holders,
    "tasks": list_tasks,
    "ports": list_ports,
    "load": list_biggest,
    "settings": collect_settings,
    "wandb": collect_wandb,
    "pythons": collect_pythons,
    "identity": collect_identity,
    "apt": collect_apt,
    "logs": collect_logs,
}
