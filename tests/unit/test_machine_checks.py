"""What the checks of this machine say about every state that they know, and what --fix mends."""

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpuherd._version import __version__
from tpuherd.checks import machine_checks as checks
from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.check_table import CHECKS, MACHINE_CHECKS
from tpuherd.checks.fixes import FIXES, fix_machine
from tpuherd.checks.judge_machine import (
    judge_daemon,
    judge_disks,
    judge_folder,
    judge_ssh_client,
    judge_versions,
)
from tpuherd.checks.judge_project import EngineFacts, judge_context, judge_engine, judge_store
from tpuherd.checks.machine_facts import (
    DiskFacts,
    Machine,
    PathFacts,
    ProgramRun,
    VersionFacts,
    run_program,
)
from tpuherd.checks.run_checks import CheckFunction, run_checks
from tpuherd.clock import WallClock
from tpuherd.errors import HerdError, NoLogin, NotFound, StoreDamaged
from tpuherd.model.trouble import TroubleRecord
from tpuherd.ports import LeaseHolder
from tpuherd.remote.client_key import FILE, key_pair

OK, WARNING, PROBLEM = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.PROBLEM
NOW = 1_800_000_000.0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "NO_GCE_CHECK": "true"}
    return Machine(environ=environ, world=None, clock=WallClock())


def look(function: Any, machine: Machine) -> CheckResult:
    """The only result of a check."""
    (found,) = asyncio.run(function(machine))
    assert isinstance(found, CheckResult)
    return found


def fix(result: CheckResult, machine: Machine) -> list[str]:
    return asyncio.run(fix_machine([result], machine))


def test_every_check_of_the_table_has_a_function_and_every_fix_is_told(machine: Machine) -> None:
    assert list(checks.machine_checks(machine)) == [kind.id for kind in MACHINE_CHECKS]
    assert all(kind.looks_at and kind.matters for kind in CHECKS.values())
    assert FIXES.keys() >= {kind.id for kind in MACHINE_CHECKS if kind.fix} - {"daemon"}


@pytest.mark.parametrize(
    ("name", "path", "good", "bad", "function"),
    [
        ("config-folder", ".config/tpuherd", 0o700, 0o755, checks.check_config_folder),
        ("state-folder", ".local/state/tpuherd", 0o755, 0o777, checks.check_state_folder),
    ],
)
def test_folders_that_others_may_use_are_closed(
    machine: Machine, name: str, path: str, good: int, bad: int, function: Any
) -> None:
    folder = Path(machine.environ["HOME"], path)
    assert look(function, machine).status is OK  # not there yet
    folder.mkdir(parents=True)
    folder.chmod(good)
    assert look(function, machine).status is OK
    folder.chmod(bad)
    found = look(function, machine)
    assert (found.status, found.check) == (WARNING, name)
    assert f"mode {bad:o}" in found.found
    (said,) = fix(found, machine)
    assert said.startswith(f"changed the mode of {folder} from {bad:o}")
    assert look(function, machine).status is OK


def test_a_folder_that_can_not_be_written_is_a_problem() -> None:
    facts = PathFacts(path=Path("/x"), exists=True, mode=0o700, mine=False, writable=False)
    found = judge_folder("state-folder", facts, 0)
    assert (found.status, found.remedy) == (PROBLEM, "make it yours: sudo chown -R $USER /x")
    assert "belongs to another user" in found.found


def test_a_key_is_private_and_usable(machine: Machine) -> None:
    config = machine.folders.config
    assert "will be created" in look(checks.check_key, machine).found
    key_pair(config)
    assert look(checks.check_key, machine).status is OK
    (config / FILE).chmod(0o644)
    found = look(checks.check_key, machine)
    assert found.status is WARNING
    fix(found, machine)
    assert look(checks.check_key, machine).status is OK
    (config / FILE).write_text("nonsense")
    found = look(checks.check_key, machine)
    assert found.status is PROBLEM
    assert found.remedy.endswith(f"mv {config / FILE} {config / FILE}.old")
    (config / FILE).rename(config / "old")
    key_pair(config)
    assert look(checks.check_key, machine).status is OK


def test_ssh_config_is_tried_by_ssh_itself(machine: Machine) -> None:
    file = machine.ssh_config
    assert look(checks.check_ssh_config, machine).status is OK  # there is none
    file.parent.mkdir(mode=0o700)
    file.write_text("Host gpt\n  Hostnam 1.2.3.4\n")
    file.chmod(0o600)
    found = look(checks.check_ssh_config, machine)
    assert found.status is PROBLEM
    assert "line 2: Bad configuration option: hostnam" in found.found
    file.write_text("Host gpt\n  Hostname 1.2.3.4\n")
    assert look(checks.check_ssh_config, machine).status is OK
    file.chmod(0o666)
    found = look(checks.check_ssh_config, machine)
    assert found.status is PROBLEM
    assert "others may write" in found.found
    fix(found, machine)
    assert look(checks.check_ssh_config, machine).status is OK
    assert file.stat().st_mode & 0o777 == 0o644


def test_the_version_of_ssh() -> None:
    assert judge_ssh_client(None, "").status is WARNING
    old = judge_ssh_client("/usr/bin/ssh", "OpenSSH_7.2p2 Ubuntu-4, OpenSSL 1.0.2g")
    assert (old.status, old.remedy) == (WARNING, "install OpenSSH 7.3 or newer")
    assert judge_ssh_client("/usr/bin/ssh", "OpenSSH_9.2p1, OpenSSL 3").status is OK
    assert judge_ssh_client("/bin/ssh", "dropbear").status is OK


@pytest.fixture
def short_home() -> Iterator[Path]:
    """A folder for sockets, whose paths the kernel limits to about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="home-") as name:
        yield Path(name)


@pytest.mark.parametrize("turns", range(6))
def test_a_program_whose_check_is_cancelled_ends(turns: int) -> None:
    """Also if it is cancelled while it starts, and twice."""

    async def cancel_after_turns() -> ProgramRun | BaseException:
        running = asyncio.ensure_future(run_program(["sleep", "1000"], {"PATH": "/usr/bin:/bin"}))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        return (await asyncio.gather(running, return_exceptions=True))[0]

    assert isinstance(asyncio.run(cancel_after_turns()), asyncio.CancelledError)


def test_dead_sockets_are_found_and_removed(machine: Machine, short_home: Path) -> None:
    machine = replace(machine, environ={**machine.environ, "HOME": str(short_home)})
    runtime = machine.folders.runtime
    runtime.mkdir(parents=True)
    runtime.chmod(0o755)
    found = look(checks.check_daemon, machine)
    assert "open to others (mode 755)" in found.found
    fix(found, machine)
    path = runtime / "keeper.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    found = look(checks.check_daemon, machine)
    assert found.status is WARNING
    assert f"nobody listens on {path}" in found.found
    assert fix(found, machine) == [f"removed {path}, on which nobody listened"]
    assert look(checks.check_daemon, machine).status is OK


def test_a_daemon_of_another_version() -> None:
    runtime = PathFacts(path=Path("/r"), exists=True, mode=0o700)
    status: dict[str, Any] = {"pid": 7, "version": __version__, "under_way": []}
    assert judge_daemon(status, [], runtime, __version__).status is OK
    for other in ({"version": "0.0.1"}, {"outdated": True}):
        idle = judge_daemon({**status, **other}, [], runtime, __version__)
        assert (idle.status, idle.fix) == (WARNING, "old-daemon")
        busy = judge_daemon({**status, **other, "under_way": ["exec"]}, [], runtime, __version__)
        assert (busy.status, busy.fix) == (WARNING, "")
        assert "is busy: exec" in busy.found


@pytest.mark.parametrize(
    ("free", "inodes", "status"),
    [
        (5 << 30, None, OK),
        (5 << 30, 10**6, OK),
        (500 << 20, 10**6, WARNING),
        (5 << 20, 10**6, PROBLEM),
        (5 << 30, 5_000, WARNING),
        (500 << 20, 10, PROBLEM),
    ],
)
def test_disks(free: int, inodes: int | None, status: CheckStatus) -> None:
    roomy = DiskFacts(path=Path("/a"), free=1 << 40, inodes=None)
    found = judge_disks([roomy, DiskFacts(path=Path("/b"), free=free, inodes=inodes)])
    assert (found.status, "/b" in found.found) == (status, True)


def test_versions() -> None:
    for python, system, status in (
        ("3.12.4", "Linux", OK),
        ("3.11.0rc1", "Darwin", OK),
        ("3.15.0", "Linux", WARNING),
    ):
        facts = VersionFacts(herd="0.1", python=python, system=system)
        assert judge_versions(facts).status is status
    assert (
        "tried on Linux only"
        in judge_versions(VersionFacts(herd="0.1", python="3.12.4", system="Darwin")).found
    )


def test_the_context(machine: Machine, tmp_path: Path) -> None:
    assert judge_context("Google Cloud", "you", NoLogin("no login")).status is OK
    assert judge_context("Google Cloud", "you", NotFound("no world")).status is PROBLEM
    config = machine.folders.config
    config.mkdir(parents=True)
    (config / "contexts.json").write_text('{"contexts": {"lab": {"world": "/w"}}}')
    chosen = replace(machine, environ={**machine.environ, "HERD_CONTEXT": "lab"})
    assert look(checks.check_context, chosen).found == "there is no world in /w"
    assert checks.name_chooser(chosen) == "context lab"
    (config / "contexts.json").write_text("{")
    found = look(checks.check_context, machine)
    assert (found.status, "contexts.json can't be used" in found.found) == (PROBLEM, True)


def test_folders_that_can_not_even_be_looked_at(machine: Machine) -> None:
    long = {
        **machine.environ,
        "XDG_CONFIG_HOME": f"/{'x' * 300}",
        "XDG_STATE_HOME": f"/{'x' * 300}",
    }
    found = asyncio.run(
        run_checks(
            checks.machine_checks(replace(machine, environ=long)), where="here", clock=WallClock()
        )
    )
    bad = {one.check: one.status for one in found if one.status is not OK}
    assert bad == {"context": PROBLEM, "config-folder": PROBLEM, "state-folder": PROBLEM}


def test_the_store() -> None:
    assert judge_store(None, (), None).status is OK
    assert judge_store(2, (), None).found == "2 jobs"
    assert judge_store(2, ("it was damaged",), None).status is WARNING
    damaged = judge_store(None, (), StoreDamaged("it is damaged", hint="herd engine stop"))
    assert (damaged.status, damaged.remedy) == (PROBLEM, "herd engine stop")


def test_the_engine() -> None:
    holder = LeaseHolder(pid=7, host="here", who="me@here", epoch=1, taken_at=NOW - 60, until=NOW)
    rest = EngineFacts(holder=None, version="", wanted=False, troubles=())
    (found,) = judge_engine(rest, "0.1", NOW)
    assert found.status is OK
    (found,) = judge_engine(
        EngineFacts(holder=None, version="0.1", wanted=True, troubles=()), "0.1", NOW
    )
    assert (found.status, found.remedy) == (PROBLEM, "herd engine start")
    (found,) = judge_engine(
        EngineFacts(holder=holder, version="0.1", wanted=True, troubles=()), "0.1", NOW
    )
    assert (found.status, found.found) == (OK, "pid 7 on here, for 1 m 00 s")
    trouble = TroubleRecord(source="cloud", sentence="no quota", hint="ask", since=NOW - 5, at=NOW)
    both = judge_engine(
        EngineFacts(holder=holder, version="0.0.1", wanted=True, troubles=[trouble]), "0.1", NOW
    )
    assert [one.status for one in both] == [WARNING, WARNING]
    assert (both[0].found, both[0].remedy) == (
        "Problem with the cloud, for 5.0 s: no quota",
        "ask",
    )
    assert "runs version 0.0.1, this is 0.1" in both[1].found


def test_one_broken_check_hides_no_other() -> None:
    async def refuse() -> list[CheckResult]:
        raise HerdError("the line is cut", hint="plug it in")

    async def fall() -> list[CheckResult]:
        raise PermissionError(13, "Permission denied", "/root/x")

    async def hang() -> list[CheckResult]:
        await asyncio.Event().wait()
        return []

    async def err() -> list[CheckResult]:
        raise KeyError("oops")

    async def work() -> list[CheckResult]:
        return [CheckResult(check="disk", where="here", status=PROBLEM, found="full")]

    functions: dict[str, CheckFunction] = {
        "login": refuse, "store": fall, "clock": hang, "quota": err, "disk": work,
    }  # fmt: skip
    found = asyncio.run(run_checks(functions, where="here", clock=WallClock(), seconds=0.05))
    assert [(one.check, one.found) for one in found] == [
        ("login", "could not look: the line is cut"),
        ("store", "could not look: /root/x: Permission denied"),
        ("clock", "could not look: no answer within 0.05 s"),
        ("quota", "could not look: KeyError: 'oops'"),
        ("disk", "full"),
    ]
    assert found[0].remedy == "plug it in"
    skipped = CheckStatus.SKIPPED
    assert [one.status for one in found[:4]] == [skipped, WARNING, PROBLEM, WARNING]
    assert found[4].matters == CHECKS["disk"].matters
