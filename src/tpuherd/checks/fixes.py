"""The safe repairs of `herd check --fix`: each changes only what its check named."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tpuherd.checks import hosts
from tpuherd.checks.check_all import check_all, find_machine
from tpuherd.checks.check_results import CheckResult
from tpuherd.checks.judge_machine import ALL_WRITE, OTHERS_READ, OTHERS_WRITE
from tpuherd.checks.machine_facts import Machine, list_dead_sockets, read_path, stop_daemon
from tpuherd.checks.run_checks import describe_error
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import HerdError
from tpuherd.remote.client_key import FILE

#: Repairs this machine and returns what was done, in sentences.
FixFunction = Callable[[Machine], Awaitable[Sequence[str]]]


async def fix_and_check(
    target: str | None, console: Console, home: HostAccess
) -> list[CheckResult]:
    """Check, do the safe repairs, print what was done, and check again if anything was."""
    before = await check_all(target, console, home)
    done = await fix_machine(before, find_machine(console))
    if target is not None and any(one.fix and one.fix not in FIXES for one in before):
        place, reach = await home.open_remote(console)
        done += await hosts.fix_hosts(before, target, place, reach)
    for sentence in done:
        await console.print_notice(f"herd check: {sentence}")
    if not done:
        await console.print_notice("herd check: nothing found that --fix can repair safely")
        return before
    return await check_all(target, console, home)


async def fix_machine(results: Sequence[CheckResult], machine: Machine) -> list[str]:
    """Do the repairs that the results name; one that fails is told, and the others go on."""
    done: list[str] = []
    for fix in dict.fromkeys(one.fix for one in results if one.fix in FIXES):
        try:
            done += await FIXES[fix](machine)
        except HerdError as error:
            done.append(f"could not repair {fix}: {error.sentence}")
        except OSError as error:
            done.append(f"could not repair {fix}: {describe_error(error)}")
    return done


def restrict_mode(path: Path, forbidden: int) -> list[str]:
    """Take these permissions away from a file or folder that is not a symbolic link."""
    facts = read_path(path)
    if not facts.exists or path.is_symlink() or not facts.mode & forbidden:
        return []
    mode = facts.mode & ~forbidden
    path.chmod(mode)
    return [f"changed the mode of {path} from {facts.mode:o} to {mode:o}"]


async def fix_config_folder(machine: Machine) -> Sequence[str]:
    return restrict_mode(machine.folders.config, OTHERS_READ)


async def fix_state_folder(machine: Machine) -> Sequence[str]:
    return restrict_mode(machine.folders.state, ALL_WRITE)


async def fix_runtime_folder(machine: Machine) -> Sequence[str]:
    return restrict_mode(machine.folders.runtime, OTHERS_READ)


async def fix_key(machine: Machine) -> Sequence[str]:
    return restrict_mode(machine.folders.config / FILE, OTHERS_READ)


async def fix_ssh_config(machine: Machine) -> Sequence[str]:
    file = machine.ssh_config
    return [
        *restrict_mode(file.parent, OTHERS_WRITE),
        *restrict_mode(file, OTHERS_WRITE),
    ]


async def remove_dead_sockets(machine: Machine) -> Sequence[str]:
    done = []
    for path in list_dead_sockets(machine.folders.runtime):
        path.unlink(missing_ok=True)
        done.append(f"removed {path}, on which nobody listened")
    return done


async def stop_old_daemon(machine: Machine) -> Sequence[str]:
    if await stop_daemon(machine.environ):
        return ["stopped the old daemon; the next command on a host starts a new one"]
    return ["the old daemon is busy and was left alone: herd engine daemon stop --now"]


#: By the `fix` of a result.
FIXES: Mapping[str, FixFunction] = {
    "config-folder": fix_config_folder,
    "state-folder": fix_state_folder,
    "runtime-folder": fix_runtime_folder,
    "ssh-key": fix_key,
    "ssh-config": fix_ssh_config,
    "dead-sockets": remove_dead_sockets,
    "old-daemon": stop_old_daemon,
}
