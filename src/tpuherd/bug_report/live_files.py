"""The files of a bug report that ask: the results of checks, the daemon's status, the plan."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass

from tpuherd.bug_report.report_file import ReportFile, json_file
from tpuherd.checks.check_all import check_all, choose_debug
from tpuherd.checks.judge_machine import WHERE
from tpuherd.checks.machine_checks import machine_checks
from tpuherd.checks.machine_facts import Machine, ask_daemon
from tpuherd.checks.run_checks import run_checks
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.preview_plan import preview_plan
from tpuherd.remote.open_remote import open_cloud
from tpuherd.settings import project_access
from tpuherd.store.open_database import open_database

#: Checks that open the store, which sets a damaged one aside.
OPENING = ("store", "engine")


@dataclass(frozen=True, kw_only=True, slots=True)
class NobodyToAsk:
    """Stands where others ask the user: a report changes nothing, so nothing is asked."""

    environ: Mapping[str, str]

    async def show_message(self, sentence: str) -> None:
        """Say nothing."""

    async def ask_confirmation(self, question: str, details: str = "") -> bool:
        return False


async def checks_file(
    machine: Machine, console: Console, home: HostAccess, *, is_sound: bool
) -> ReportFile:
    """Return what `herd check` finds; with a damaged store, what it finds without opening it."""
    if is_sound:
        results = await check_all(None, console, home)
    else:
        chosen = {name: one for name, one in machine_checks(machine).items() if name not in OPENING}
        debug = choose_debug(console)
        results = await run_checks(chosen, where=WHERE, clock=machine.clock, debug=debug)
    return json_file("checks.json", [one.as_json() for one in results], "what herd check finds")


async def daemon_file(machine: Machine) -> ReportFile:
    status = await ask_daemon(machine.environ)
    return json_file("daemon/status.json", status, "the daemon's status; null: none runs")


async def plan_file(machine: Machine, job: str | None) -> ReportFile:
    """Return what the engine would do now, after one look at the cloud."""
    place = project_access.resolve_access(machine.environ, world=machine.world)
    async with open_cloud(place, machine.clock) as cloud:

        async def get_cloud() -> Cloud:
            return cloud

        with closing(open_database(place, machine.clock.now())) as store:
            session = Session(
                place=place,
                store=store,
                clock=machine.clock,
                prompter=NobodyToAsk(environ=machine.environ),
                cloud=get_cloud,
            )
            plan = await preview_plan(job, session)
    return json_file("plan.json", asdict(plan), "what the engine would do now, and why")
