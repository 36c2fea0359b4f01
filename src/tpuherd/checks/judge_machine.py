"""Decides what the facts of this machine mean: pure functions."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.machine_facts import DiskFacts, PathFacts, ProgramRun, VersionFacts
from tpuherd.views.format_text import format_bytes

WHERE = "this machine"
TESTED = ((3, 11), (3, 13))  #: the first and the last version of Python that tests run on
FREE_LEAST, FREE_LOW = 50 << 20, 1 << 30  #: bytes: a problem below the first
INODES_LEAST, INODES_LOW = 1_000, 20_000
INCLUDE_SINCE = (7, 3)  #: the first OpenSSH that knows Include
OTHERS_READ, OTHERS_WRITE, ALL_WRITE = 0o077, 0o022, 0o002


def machine_result(
    check: str, status: CheckStatus, found: str, remedy: str = "", fix: str = ""
) -> CheckResult:
    return CheckResult(check=check, where=WHERE, status=status, found=found, remedy=remedy, fix=fix)


def judge_versions(facts: VersionFacts) -> CheckResult:
    said = f"herd {facts.herd}, Python {facts.python}, {facts.system}"
    first, last = TESTED
    if not first <= version_pair(facts.python) <= last:
        return machine_result(
            "versions",
            CheckStatus.WARNING,
            f"{said}: herd is tested with Python {dotted(first)} to {dotted(last)}",
            f"install herd for one of these: uv tool install --python {dotted(last)} tpuherd",
        )
    untried = "" if facts.system == "Linux" else " (herd has been tried on Linux only)"
    return machine_result("versions", CheckStatus.OK, f"{said}{untried}")


def version_pair(text: str) -> tuple[int, int]:
    """3.12.4 → (3, 12)"""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def judge_folder(check: str, facts: PathFacts, forbidden: int) -> CheckResult:
    """`forbidden`: permissions that others must not have."""
    path = facts.path
    if not facts.writable:
        owner = "" if facts.mine else ", and belongs to another user"
        return machine_result(
            check,
            CheckStatus.PROBLEM,
            f"{path} can't be written{owner}",
            f"make it yours: sudo chown -R $USER {path}" if facts.exists else f"create {path}",
        )
    if not facts.exists:
        return machine_result(check, CheckStatus.OK, f"{path} will be created at the first use")
    if facts.mode & forbidden:
        right = "write" if forbidden == ALL_WRITE or facts.mode & OTHERS_WRITE else "read"
        return machine_result(
            check,
            CheckStatus.WARNING,
            f"others may {right} {path} (mode {facts.mode:o})",
            f"chmod {facts.mode & ~forbidden:o} {path}",
            check,
        )
    return machine_result(check, CheckStatus.OK, str(path))


def judge_disks(disks: Sequence[DiskFacts]) -> CheckResult:
    """The fullest one decides."""
    fullest = min(disks, key=lambda one: one.free)
    scarce = [one for one in disks if one.inodes is not None and one.inodes < INODES_LOW]
    said = f"{format_bytes(fullest.free)} are free in {fullest.path}"
    status = CheckStatus.OK
    if scarce:
        said = f"{scarce[0].inodes} inodes are free in {scarce[0].path}"
        least = min(one.inodes or 0 for one in scarce)
        status = CheckStatus.PROBLEM if least < INODES_LEAST else CheckStatus.WARNING
    if fullest.free < FREE_LEAST:
        status = CheckStatus.PROBLEM
    elif fullest.free < FREE_LOW and status is CheckStatus.OK:
        status = CheckStatus.WARNING
    remedy = "" if status is CheckStatus.OK else "delete files that you do not need there"
    return machine_result("disk", status, said, remedy)


def judge_key(facts: PathFacts, mistake: str) -> CheckResult:
    """`mistake`: why its content can't be used, if so."""
    path = facts.path
    if not facts.exists:
        return machine_result("ssh-key", CheckStatus.OK, f"{path} will be created at the first use")
    if mistake:
        return machine_result(
            "ssh-key",
            CheckStatus.PROBLEM,
            f"{path} can't be used: {mistake}",
            f"move it away, and herd creates a new one: mv {path} {path}.old",
        )
    if facts.mode & OTHERS_READ:
        return machine_result(
            "ssh-key",
            CheckStatus.WARNING,
            f"others may read the private key {path} (mode {facts.mode:o})",
            f"chmod 600 {path}",
            "ssh-key",
        )
    return machine_result("ssh-key", CheckStatus.OK, str(path))


def judge_ssh_client(program: str | None, banner: str) -> CheckResult:
    if program is None:
        return machine_result(
            "ssh-client",
            CheckStatus.WARNING,
            "there is no ssh in PATH",
            "install OpenSSH's client, such as: sudo apt install openssh-client",
        )
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", banner)
    if found and (int(found[1]), int(found[2])) < INCLUDE_SINCE:
        return machine_result(
            "ssh-client",
            CheckStatus.WARNING,
            f"{program} is OpenSSH {found[1]}.{found[2]}, which knows no Include",
            f"install OpenSSH {dotted(INCLUDE_SINCE)} or newer",
        )
    name = banner.partition(",")[0] or "of an unknown version"
    return machine_result("ssh-client", CheckStatus.OK, f"{program}, {name}")


def judge_ssh_config(facts: PathFacts, folder: PathFacts, tried: ProgramRun | None) -> CheckResult:
    """`tried`: ssh with this file; None if it was not run."""
    path = facts.path
    if not facts.exists:
        return machine_result("ssh-config", CheckStatus.OK, f"there is no {path}")
    loose = [one.path for one in (folder, facts) if one.mode & OTHERS_WRITE]
    if loose:
        names = " and ".join(map(str, loose))
        return machine_result(
            "ssh-config",
            CheckStatus.PROBLEM,
            f"others may write {names}, so ssh refuses the file",
            f"chmod go-w {' '.join(map(str, loose))}",
            "ssh-config",
        )
    if tried is not None and tried.status != 0:
        line = next(iter(tried.err.splitlines()), f"exit status {tried.status}")
        return machine_result(
            "ssh-config",
            CheckStatus.PROBLEM,
            f"ssh refuses {path}: {line.removeprefix(f'{path}: ')}",
            "correct that line",
        )
    return machine_result("ssh-config", CheckStatus.OK, str(path))


def judge_daemon(
    status: Mapping[str, Any] | None, dead: Sequence[Path], runtime: PathFacts, herd: str
) -> CheckResult:
    """`dead`: sockets on which nobody listens."""
    if runtime.exists and (runtime.mode & OTHERS_READ or not runtime.mine):
        return machine_result(
            "daemon",
            CheckStatus.WARNING,
            f"{runtime.path} is open to others (mode {runtime.mode:o}), so no daemon is used",
            f"chmod 700 {runtime.path}",
            "runtime-folder",
        )
    if status is None and dead:
        return machine_result(
            "daemon",
            CheckStatus.WARNING,
            f"nobody listens on {dead[0]}: the process that created it was killed",
            f"rm {dead[0]}",
            "dead-sockets",
        )
    if status is None:
        return machine_result(
            "daemon", CheckStatus.OK, "none runs; the first command on a host starts one"
        )
    version, pid = str(status.get("version", "unknown")), status.get("pid")
    busy = ", ".join(map(str, status.get("under_way", ())))
    old = f"runs version {version}" if version != herd else ""
    if not old and status.get("outdated"):
        old = "started before the installed files changed"
    if old:
        return machine_result(
            "daemon",
            CheckStatus.WARNING,
            f"the daemon (pid {pid}) {old}{f', and is busy: {busy}' if busy else ''}",
            "herd engine daemon stop --now (commands on hosts go on)"
            if busy
            else "herd engine daemon stop",
            "" if busy else "old-daemon",
        )
    return machine_result("daemon", CheckStatus.OK, f"pid {pid}, version {version}")
