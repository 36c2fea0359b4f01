"""Restricts an unprivileged process without namespaces (Landlock)."""

import os
import struct
from pathlib import Path

from tpuherd_sim.hosts import seccomp
from tpuherd_sim.hosts.messages import Message
from tpuherd_sim.hosts.syscalls import call_prctl, check_result, libc

CREATE_RULES, ADD_RULE, RESTRICT = 444, 445, 446
EXECUTE, WRITE, READ, LIST = 1, 2, 4, 8
CHANGE = 0x7FF0 | WRITE  #: all kinds of create and remove (ABI 3: truncate as well)
LOOK = EXECUTE | READ | LIST
#: For `scoped` (ABI 6): no signals and no abstract unix sockets outside. Connecting to path
#: sockets can't be restricted in any version so far.
SCOPES = 1 | 2
MAY_LOOK = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/proc", "/sys")


def landlock_version() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    if not Path("/proc/self").exists():
        return 0
    return max(0, int(libc.syscall(CREATE_RULES, None, 0, 1)))


def can_block_signals() -> bool:
    """Whether Landlock can keep a host from signalling other processes."""
    return landlock_version() >= 6


def restrict_host(plan: Message) -> None:
    """Restrict this process and its children: write access to its folder, read access to the
    system.
    """
    if not Path("/proc/self").exists():
        return
    seccomp.restrict_kill_and_reboot()
    abi = landlock_version()
    if not abi:
        return
    handled = LOOK | CHANGE
    if abi < 3:
        handled &= ~0x4000
    if abi < 2:
        handled &= ~0x2000
    rules = struct.pack("QQQ", handled, 0, SCOPES if abi >= 6 else 0)[: 24 if abi >= 6 else 8]
    file = check_result(libc.syscall(CREATE_RULES, rules, len(rules), 0), "Landlock")
    try:
        for path in (*MAY_LOOK, *plan["offers"], plan["refusals"], plan["skel"]):
            allow_path(file, path, LOOK & handled)
        allow_path(file, "/dev", (LOOK | WRITE) & handled)
        for path in ("/dev/shm", plan["corner"]):  # /tmp is the machine's; TMPDIR names another
            allow_path(file, path, handled)
        call_prctl(38, 1)
        check_result(libc.syscall(RESTRICT, file, 0), "Landlock")
    finally:
        os.close(file)


def allow_path(rules: int, path: str, what: int) -> None:
    """Allow access to a folder and everything below it."""
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = struct.pack("=Qi", what, folder)
        check_result(libc.syscall(ADD_RULE, rules, 1, rule, 0), f"Landlock rule for {path}")
    finally:
        os.close(folder)
