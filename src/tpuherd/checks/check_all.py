"""Runs all checks for `herd check`: of this machine, of the cloud, and of hosts.

`machine_checks` and `cloud_checks` return functions by the ids of the table; `run_checks` runs
them at the same time; `hosts` checks the hosts of a target.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from tpuherd.checks import hosts
from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.check_table import CLOUD_CHECKS, add_reason
from tpuherd.checks.cloud_checks import check_login, cloud_checks
from tpuherd.checks.cloud_view import NO_CLOUD, cloud_title, open_login_view, open_view
from tpuherd.checks.judge_cloud import judge_no_login
from tpuherd.checks.judge_machine import WHERE
from tpuherd.checks.machine_checks import machine_checks
from tpuherd.checks.machine_facts import Machine
from tpuherd.checks.run_checks import DebugFunction, describe_error, run_checks, unseen_result
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import HerdError, InvalidInput, NoLogin, NotFound
from tpuherd.settings import project_access
from tpuherd.targets import BadTarget, parse_target_names

LATE_S = 4.0
REACH = "reach"  #: the check of whether hosts answer


async def check_all(target: str | None, console: Console, home: HostAccess) -> list[CheckResult]:
    """Return the results of all checks; with a target those of its hosts, too."""
    machine = find_machine(console)
    debug = choose_debug(console)
    checks = machine_checks(machine)
    works = {
        "this machine": run_checks(checks, where=WHERE, clock=machine.clock, debug=debug),
        "the cloud": check_cloud(machine, debug),
        f"the hosts of {target}": check_target(target, console, home),
    }
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(work) for name, work in works.items()}
        timer = group.create_task(tell_what_is_late(tasks, console, machine))
        await asyncio.wait(tasks.values())
        timer.cancel()
    return [add_reason(one) for task in tasks.values() for one in task.result()]


async def tell_what_is_late(
    tasks: Mapping[str, asyncio.Task[list[CheckResult]]], console: Console, machine: Machine
) -> None:
    """Say on a terminal what we wait for, once."""
    await machine.clock.sleep(LATE_S)
    if console.is_terminal(2):
        late = " and ".join(name for name, task in tasks.items() if not task.done())
        await console.print_notice(f"herd check: still looking at {late}")


def find_machine(console: Console) -> Machine:
    return Machine(environ=console.environ, world=console.said.world, clock=WallClock())


def choose_debug(console: Console) -> DebugFunction:
    """Return what to do with tracebacks: nothing, unless HERD_DEBUG asks for them."""

    async def print_traceback(text: str) -> None:
        if console.environ.get("HERD_DEBUG"):
            await console.print_notice(text.rstrip())

    return print_traceback


async def check_cloud(machine: Machine, debug: DebugFunction) -> list[CheckResult]:
    """Return the results of the chosen project or world, or why there are none."""
    ids = [kind.id for kind in CLOUD_CHECKS]
    try:
        place = project_access.resolve_access(machine.environ, world=machine.world)
    except NoLogin as error:
        login = judge_no_login(NO_CLOUD, error)
        return [login, *unseen_results(ids[1:], NO_CLOUD, "there is no login")]
    except OSError as error:
        return unseen_results(ids, NO_CLOUD, describe_error(error))
    except HerdError as error:
        return [
            *await check_login_alone(machine, error, debug),
            *unseen_results(ids[1:], NO_CLOUD, error.sentence),
        ]
    async with open_view(place, machine) as view:
        return await run_checks(
            cloud_checks(view), where=cloud_title(place), clock=machine.clock, debug=debug
        )


async def check_login_alone(
    machine: Machine, error: HerdError, debug: DebugFunction
) -> list[CheckResult]:
    """Return the result of the login where no project is known; `error` says why there is none."""

    async def check_token() -> Sequence[CheckResult]:
        async with open_login_view(machine, error) as view:
            return await check_login(view)

    functions = {"login": check_token}
    return await run_checks(functions, where=NO_CLOUD, clock=machine.clock, debug=debug)


def unseen_results(checks: Iterable[str], where: str, why: str) -> list[CheckResult]:
    return [unseen_result(check, where, why) for check in checks]


async def check_target(target: str | None, console: Console, home: HostAccess) -> list[CheckResult]:
    """Return the results of a target's hosts; raises NotFound for one that matches nothing, and
    InvalidInput for one that can't be parsed."""
    if target is None:
        return []
    check_target_name(target)
    try:
        place, reach = await home.open_remote(console)
    except (HerdError, OSError) as error:  # which the other checks explain
        return unseen_results([REACH], target, error_sentence(error))
    try:
        return await hosts.check_hosts(target, place, reach, WallClock())
    except (NotFound, InvalidInput):
        raise
    except (HerdError, OSError) as error:
        return unseen_results([REACH], target, error_sentence(error))


def error_sentence(error: HerdError | OSError) -> str:
    return error.sentence if isinstance(error, HerdError) else describe_error(error)


def check_target_name(target: str) -> None:
    try:
        parse_target_names(target)
    except BadTarget as error:
        raise InvalidInput(str(error)) from error


def has_problem(results: Iterable[CheckResult]) -> bool:
    return any(one.status is CheckStatus.PROBLEM for one in results)
