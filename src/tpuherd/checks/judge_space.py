"""Judges the room on a host: disks, memory, threads, and what its image preloads. Pure."""

from collections.abc import Sequence

from tpuherd.checks.host_facts import FileSystem
from tpuherd.checks.judgement import (
    CLEAN,
    CheckedHost,
    HostFinding,
    all_right,
    clean_command,
    describe_process,
    not_looked,
    report_problem,
    warn_of,
)
from tpuherd.views.format_text import format_span

MIB, GIB = 1 << 20, 1 << 30
FULL_BYTES, FULL_SHARE = 16 * MIB, 0.01
SCARCE_BYTES, SCARCE_SHARE = 10 * GIB, 0.1
FILES_FULL, FILES_SCARCE = 0.01, 0.05
MEMORY_FULL, MEMORY_SCARCE = 0.02, 0.08
THREADS_SCARCE = 0.8
OPEN_FILES = 1024
HUGEPAGES = "always"
#: Generations whose libtpu asks for transparent huge pages.
WITH_HUGEPAGES = ("v5e", "v5p", "v6e", "tpu7x")
APT_STUCK_S = 1800.0
STOPPED = {"T": "is stopped", "t": "is stopped", "Z": "is dead"}


def judge_disk(one: CheckedHost) -> Sequence[HostFinding]:
    """One finding for each file system that is full or nearly so."""
    if not one.facts.disks:
        return [not_looked("its disks can't be read")]
    wrong = [found for disk in one.facts.disks for found in judge_file_system(disk)]
    return wrong or [all_right("there is room on every disk")]


def judge_file_system(disk: FileSystem) -> list[HostFinding]:
    left = f"{format_bytes(disk.free)} of {format_bytes(disk.total)}"
    place = "/" if disk.path == "/" else disk.path
    remedy = f"look for what is large: sudo du -xh -d2 {place} | sort -h | tail"
    found = []
    if disk.free < FULL_BYTES or disk.free < FULL_SHARE * disk.total:
        found.append(report_problem(f"{place} is full: {left} are free", remedy))
    elif disk.free < min(SCARCE_BYTES, SCARCE_SHARE * disk.total):
        found.append(warn_of(f"{place} is nearly full: {left} are free", remedy))
    remedy = f"look for folders with many files: sudo du --inodes -xd3 {place} | sort -n | tail"
    if disk.files and disk.files_free <= FILES_FULL * disk.files:
        found.append(
            report_problem(f"{place} has no inodes left, so no file can be created", remedy)
        )
    elif disk.files and disk.files_free <= FILES_SCARCE * disk.files:
        found.append(warn_of(f"{place} has only {disk.files_free} inodes left", remedy))
    return found


def judge_memory(one: CheckedHost) -> Sequence[HostFinding]:
    memory = one.facts.host.memory
    if not memory.total:
        return [not_looked("its memory can't be read")]
    share = memory.available / memory.total
    if share >= MEMORY_SCARCE:
        return [all_right("there is free memory")]
    left = f"{format_bytes(memory.available)} of {format_bytes(memory.total)} are available"
    top = next(iter(one.facts.load.biggest), None)
    whose = f"; {describe_process(top)} has {format_bytes(top.bytes)}" if top else ""
    remedy = "load less at once, or end what is not needed; files in /dev/shm count as memory"
    if share < MEMORY_FULL:
        return [report_problem(f"the memory is used up: {left}{whose}", remedy)]
    return [warn_of(f"little memory is left: {left}{whose}", remedy)]


def judge_threads(one: CheckedHost) -> Sequence[HostFinding]:
    """Threads and open files against their limits."""
    load = one.facts.load
    if "load" in one.facts.failed:
        return [not_looked("its processes can't be read")]
    found = []
    if load.threads_max and load.threads > THREADS_SCARCE * load.threads_max:
        found.append(
            warn_of(
                f"{load.threads} threads run, and {load.threads_max} are allowed",
                "start fewer data workers, or set OMP_NUM_THREADS for them",
            )
        )
    if 0 < load.files_max < OPEN_FILES:
        found.append(
            warn_of(
                f"a process may open {load.files_max} files only",
                "add `ulimit -n 65536` before the command, or raise it in limits.conf",
            )
        )
    return found or [all_right("the limits are far away")]


def judge_hugepages(one: CheckedHost) -> Sequence[HostFinding]:
    if one.expected.generation not in WITH_HUGEPAGES:
        return [all_right("no matter before v5e")]
    if one.expected.simulated:
        return [not_looked("a simulated host has the kernel of this machine")]
    said = one.facts.host.hugepages
    if f"[{HUGEPAGES}]" in said or not said:
        return [all_right("transparent huge pages are on" if said else "there is no such setting")]
    command = "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    remedy = f"herd exec {one.node} -c '{command}', or as a setup step"
    return [warn_of(f"transparent huge pages are not always on: {said}", remedy)]


def judge_preload(one: CheckedHost) -> Sequence[HostFinding]:
    """A preloaded library that is missing makes every program complain."""
    rows = one.facts.settings.preloads
    wrong = [row for row in rows if row.state != "fine"]
    if not wrong:
        names = sorted({row.file.rpartition("/")[2] for row in rows})
        return [all_right(f"{', '.join(names)} is preloaded" if names else "nothing is preloaded")]
    return [
        warn_of(
            f"LD_PRELOAD in {row.where} names {row.file}, which "
            + ("does not exist" if row.state == "missing" else "is no library"),
            "install it (sudo apt-get install -y libgoogle-perftools4 has tcmalloc), or remove "
            + (f"it from {row.where}" if row.where != "login" else "it where it is set"),
        )
        for row in wrong
        if row.where != "login"
        or not any(row.file == other.file for other in wrong if other != row)
    ]


def judge_log_folder(one: CheckedHost) -> Sequence[HostFinding]:
    if one.facts.logs.usable:
        return [all_right("libtpu can write its logs")]
    return [warn_of("/tmp/tpu_logs belongs to another user", clean_command(one), fix=CLEAN)]


def judge_apt(one: CheckedHost) -> Sequence[HostFinding]:
    """Unattended upgrades hold apt's lock in a new VM's first minutes; later it is stuck."""
    apt = one.facts.apt
    if not apt.path:
        return [all_right("apt's lock is free")]
    who = describe_process(apt)
    stop = f"herd exec {one.label} -- sudo kill {apt.pid}" if apt.pid else "reboot the host"
    if apt.state in STOPPED:
        return [report_problem(f"{who} holds apt's lock and {STOPPED[apt.state]}", stop)]
    age_s = one.now + one.ahead_s - apt.since if apt.since else 0.0
    if age_s > APT_STUCK_S:
        return [report_problem(f"{who} has held apt's lock for {format_span(age_s)}", stop)]
    return [
        warn_of(
            f"{who} holds apt's lock",
            "wait: new VMs install updates in their first minutes, and setup steps with apt wait",
        )
    ]


def format_bytes(many: int) -> str:
    """52.1 GiB"""
    if many < GIB:
        return f"{many / MIB:.0f} MiB"
    return f"{many / GIB:.1f} GiB" if many < 100 * GIB else f"{many / GIB:.0f} GiB"
