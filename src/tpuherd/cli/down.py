"""`herd down`: deletes jobs and everything they hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.user_option import other_user
from tpuherd.exit_status import ABORTED, TIMED_OUT
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.jobs.cloud_inventory import CloudInventory
    from tpuherd.jobs.open_project import Session

NAME = "herd down"
FIRST_S, TELL_S = 20.0, 60.0  #: the first report of what is left, and the interval of further ones


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="All your jobs, and all other resources that herd created for you.",
)
@other_user
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until nothing is left (default), or return at once.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    help="Stop waiting after this long (5m, 2h); exit 124.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def down(names: tuple[str, ...], all_: bool, wait: bool, **said: Any) -> ParsedCommand:
    """Delete jobs: end their commands, give their nodes back and forget the jobs.

    It first shows what will be lost. It returns once the cloud lists nothing of the jobs, and
    until then says every minute what is left, and why. Running commands get TERM, their grace
    period, then KILL; their nodes are deleted at most two minutes later, even if a host does not
    answer.
    """
    if bool(names) == all_:
        raise click.UsageError("name the jobs: herd down NAME…, or herd down --all")
    if said["timeout_s"] is not None and not wait:
        raise click.UsageError("--timeout limits the wait, so it can't be combined with --no-wait")
    asked = DownOptions(names=names, waits=wait, **said)
    return make_parsed_command("herd down", partial(run_down, asked))


@dataclass(frozen=True, kw_only=True, slots=True)
class DownOptions:
    names: tuple[str, ...]  #: none: all
    yes: bool
    waits: bool
    json_: bool
    timeout_s: float | None = None
    user: str | None = None  #: whose jobs, if they are another's


async def run_down(asked: DownOptions, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session
    from tpuherd.jobs import engine_control
    from tpuherd.jobs.cloud_inventory import survey_cloud
    from tpuherd.jobs.remove import removal_preview, remove_jobs

    async with open_job_session(console, home, NAME, yes=asked.yes, acting_for=asked.user) as here:
        seen = await survey_cloud(here)
        found = removal_preview(asked.names, seen, here)
        if found.jobs:
            details = "\n".join(f"  {line}" for line in found.losses)
            if not await here.prompter.ask_confirmation(found.question, details):
                return ABORTED
            await remove_jobs(found, seen, here)
            engine_control.ensure_engine(here.store, here.place, console.environ)
        end = WaitResult()
        if asked.waits:
            end = await wait_and_report(found.jobs, asked.timeout_s, here, console)
    await print_down_result(asked, found.jobs, end, console)
    return TIMED_OUT if end.waits_for else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitResult:
    """How the waiting ended: with proof, with what is still there, or (both empty) not started."""

    proof: "CloudInventory | None" = None
    waits_for: str = ""
    held: bool = False  #: the engine deletes nothing before the user's acknowledgement


async def wait_and_report(
    jobs: Sequence[str], timeout_s: float | None, here: "Session", console: "Console"
) -> WaitResult:
    """Survey until all zones answer and list nothing of these jobs, or until the timeout; only once
    if the engine may not delete now."""
    from tpuherd.jobs import engine_control
    from tpuherd.jobs.remove import wait_until_gone
    from tpuherd.store.set_aside import awaits_acknowledgement

    begun, due = here.clock.now(), here.clock.now() + FIRST_S
    async for what, seen in wait_until_gone(jobs, here):
        if not what:
            return WaitResult(proof=seen)
        now = here.clock.now()
        is_late = timeout_s is not None and now >= begun + timeout_s
        held = awaits_acknowledgement(here.store)
        if is_late or held:
            return WaitResult(waits_for=what, held=held)
        if now >= due and console.said.loud >= 0:
            await here.prompter.show_message(what)
            due = now + TELL_S
        engine_control.ensure_engine(here.store, here.place, console.environ)
    raise AssertionError("wait_until_gone ends only when nothing is left")


async def print_down_result(
    asked: DownOptions, jobs: Sequence[str], end: WaitResult, console: "Console"
) -> None:
    from tpuherd.cli.job_session import print_json, print_lines

    proof = end.proof
    if asked.json_:
        zones = None if proof is None else sorted(proof.survey.zones)
        content = {"removed": list(jobs), "all_deleted": proof is not None, "zones": zones}
        await print_json(console, {**content, "waiting_for": end.waits_for})
    elif not jobs:
        await print_lines(console, "Nothing to delete")
    elif end.waits_for:
        continues = "" if end.held else " the engine continues,"
        await console.print_notice(
            f"{NAME}: {end.waits_for};{continues} run `herd down` again to wait"
        )
    elif proof is None:
        await print_lines(console, f"Deleting {fold_names(jobs)}; the engine gives the nodes back")
    else:
        many = len(proof.survey.zones)
        await print_lines(console, f"Deleted {fold_names(jobs)}; nothing is left in {many} zones")
