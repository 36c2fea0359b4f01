"""Linux system calls that Python lacks, through the C library."""

import ctypes
import os
import platform
import signal
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
holding_libc = ctypes.PyDLL(None, use_errno=True)  #: keeps the interpreter's lock during a call

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
RB_AUTOBOOT, RB_POWER_OFF = 0x01234567, 0x4321FEDC

# The same numbers on every architecture.
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE = -100, 0x1000, 1
MOUNT_ATTR_IDMAP, MOVE_MOUNT_F_EMPTY_PATH = 0x00100000, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class SyscallNumbers:
    """The numbers of the system calls on one architecture."""

    audit: int  #: its id in a seccomp filter
    clone: int
    pivot_root: int
    kill: int
    reboot: int
    faked: tuple[int, ...]  #: changes of owner or identity
    make_node: tuple[tuple[int, int], ...]  #: (call, index of the mode argument)


NUMBERS = {
    "x86_64": SyscallNumbers(
        audit=0xC000003E,
        clone=56,
        pivot_root=155,
        kill=62,
        reboot=169,
        # chown fchown lchown fchownat, set-{uid,gid,reuid,regid,groups,resuid,resgid,fsuid,fsgid},
        # capset
        faked=(92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119, 122, 123, 126),
        make_node=((133, 1), (259, 2)),
    ),
    "aarch64": SyscallNumbers(
        audit=0xC00000B7,
        clone=220,
        pivot_root=41,
        kill=129,
        reboot=142,
        faked=(54, 55, 143, 144, 145, 146, 147, 149, 151, 152, 159, 91),
        make_node=((33, 2),),
    ),
}
NUMBERS["arm64"] = NUMBERS["aarch64"]


def syscall_numbers() -> SyscallNumbers:
    """Return the table of this machine."""
    try:
        return NUMBERS[platform.machine()]
    except KeyError:
        raise OSError(38, f"no table of system calls for {platform.machine()}") from None


def check_result(result: int, what: str) -> int:
    """Return the result, or raise the C library's error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount_filesystem(
    source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None
) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    check_result(
        libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]),
        f"mount {kind or source} on {target}",
    )


def unmount_target(target: str) -> None:
    """Unmount now; open files stay usable."""
    check_result(libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def unshare_namespaces(flags: int) -> None:
    check_result(libc.unshare(flags), "unshare")


def enter_namespace(namespace: int) -> None:
    """Enter the namespace of an open file."""
    check_result(libc.setns(namespace, 0), "setns")


def pivot_root(new: str, old: str) -> None:
    check_result(
        libc.syscall(syscall_numbers().pivot_root, new.encode(), old.encode()), "pivot_root"
    )


def clone_process(flags: int) -> int:
    """Fork into new namespaces; return 0 in the child.

    The interpreter must be told before and after, as os.fork() does it: else its locks are not in
    the state that the child expects, and Python 3.13 aborts.
    """
    number, word = syscall_numbers().clone, ctypes.c_ulong(flags | signal.SIGCHLD)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = holding_libc.syscall(number, word, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        signal.set_wakeup_fd(-1)
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    return check_result(pid, "clone")


def call_prctl(option: int, value: int = 0) -> None:
    """Call prctl(2) with one argument; do nothing on other systems than Linux."""
    if hasattr(libc, "prctl"):
        check_result(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Receive this signal when the parent thread ends; a change of user resets this."""
    call_prctl(1, number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies."""
    call_prctl(36, 1)


def be_dumpable() -> None:
    """Own our files under /proc again after a change of user."""
    call_prctl(4, 1)


def set_process_name(name: str) -> None:
    """Show this name instead of the interpreter's command line."""
    if not Path("/proc/self/stat").exists():
        return
    libc.prctl(15, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)
    fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
        text = name.encode()[: end - start - 1]
        ctypes.memmove(start, text, len(text))


def map_ids(pid: int, first: int, count: int) -> None:
    """Map the ids 0 … count-1 of a new user namespace to first … outside."""
    for kind in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{kind}").write_text(f"0 {first} {count}")


def copy_mount(source: str) -> int:
    """Return an open mount of the same files that is nowhere attached (Linux 5.2)."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC
    return check_result(
        libc.syscall(OPEN_TREE, AT_FDCWD, source.encode(), flags), f"open_tree {source}"
    )


def attach_mount(tree: int, target: str) -> None:
    """Attach an open mount; it stays attached when the file is closed."""
    check_result(
        libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH),
        f"move_mount to {target}",
    )


def mount_id_mapped(source: str, target: str, user_namespace: int) -> None:
    """Mount `source` at `target` with owners mapped by a user namespace (Linux 5.12)."""
    tree = copy_mount(source)
    try:
        attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, user_namespace)
        check_result(
            libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes)),
            f"id-mapped mount of {source}",
        )
        attach_mount(tree, target)
    finally:
        os.close(tree)


def reboot_namespace(how: int) -> None:
    """End the PID namespace whose init we are; nothing else is affected."""
    check_result(libc.reboot(ctypes.c_int(how - (1 << 32) if how >> 31 else how)), "reboot")


def process_family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    if not Path("/proc/self").exists():
        return family_by_ps(pid)
    found = [pid]
    for each in found:
        found += child_processes(each)
    return found


def child_processes(pid: int) -> list[int]:
    """Return the children; none if the process has ended."""
    if not Path("/proc/self").exists():
        return family_by_ps(pid)[1:]
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    except OSError:
        pass  # it ended meanwhile
    return found


def family_by_ps(pid: int) -> list[int]:
    """Do the same with ps where there is no /proc."""
    command = ["ps", "-axo", "pid=,ppid="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    pairs = [line.split() for line in listed.stdout.splitlines()]
    found = [pid]
    for each in found:
        found += [int(child) for child, parent in pairs if int(parent) == each]
    return found


def signal_family(pid: int, number: int) -> list[int]:
    """Send a signal to a process and all its descendants, including new ones.

    This process is skipped, so that it can finish.
    """
    signalled: list[int] = []
    us = os.getpid()
    while fresh := [each for each in process_family(pid) if each not in signalled and each != us]:
        for each in fresh:
            signalled.append(each)
            try:
                os.kill(each, number)
            except (ProcessLookupError, PermissionError):
                pass
    return signalled


def kill_family(pid: int) -> None:
    """Kill a process and all its descendants; they are stopped first, so that none escapes."""
    for each in reversed(signal_family(pid, signal.SIGSTOP)):
        try:
            os.kill(each, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
