"""`herd down`: drop jobs, and everything they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import ABORTED, TIMED_OUT
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.jobs.cloud_inventory import CloudInventory
    from tpuherd.jobs.open_project import Session

NAME = "herd down"
FIRST_S, TELL_S = 20.0, 60.0  #: what is waited for is said after so long, then so often


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every job, and whatever else bears our name.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--wait/--no-wait", default=True, help="Come back when nothing is left, or at once.")
@click.option(
    "--timeout", "timeout_s", type=Duration(), help="Wait no longer than this (5m, 2h); exit 124."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def down(
    names: tuple[str, ...],
    all_: bool,
    yes: bool,
    wait: bool,
    timeout_s: float | None,
    json_: bool,
) -> ParsedCommand:
    """Drop jobs: their commands end, their nodes and requests go, the wish is forgotten.

    What is lost is said before. It is over when the cloud lists nothing of them any more; until
    then it says each minute what it waits for, and why. A command that runs gets TERM, its grace
    and KILL; two minutes later at most its node is given back, whatever its host says.
    """
    if bool(names) == all_:
        raise click.UsageError("say which: herd down NAME…, or --all")
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout says how long to wait: leave out --no-wait")
    asked = DownOptions(names=names, yes=yes, waits=wait, json_=json_, timeout_s=timeout_s)
    return make_parsed_command("herd down", partial(run_down, asked))


@dataclass(frozen=True, kw_only=True, slots=True)
class DownOptions:
    """What is wanted."""

    names: tuple[str, ...]  #: none: all
    yes: bool
    waits: bool
    json_: bool
    timeout_s: float | None = None


async def run_down(asked: DownOptions, console: "Console", home: "HostAccess") -> int:
    """Ask, record, wait."""
    from tpuherd.cli.job_session import open_job_session
    from tpuherd.jobs import engine_control
    from tpuherd.jobs.cloud_inventory import survey_cloud
    from tpuherd.jobs.remove import removal_preview, remove_jobs

    async with open_job_session(console, home, NAME, yes=asked.yes) as here:
        seen = await survey_cloud(here)
        found = removal_preview(asked.names, seen, here)
        if found.jobs:
            details = "\n".join(f"  {line}" for line in found.losses)
            if not await here.talk.ask_confirmation(found.question, details):
                return ABORTED
            await remove_jobs(found, seen, here)
            engine_control.ensure_engine(here.place, console.environ)
        end = WaitResult()
        if asked.waits:
            end = await wait_and_report(found.jobs, asked.timeout_s, here, console)
    await print_down_result(asked, found.jobs, end, console)
    return TIMED_OUT if end.waits_for else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitResult:
    """How the waiting ended: with a proof, with what was waited for in vain, or not begun."""

    proof: "CloudInventory | None" = None
    waits_for: str = ""


async def wait_and_report(
    jobs: Sequence[str], timeout_s: float | None, here: "Session", console: "Console"
) -> WaitResult:
    """Look until nothing of them is listed, in zones that all answered, or for so long."""
    from tpuherd.jobs import engine_control
    from tpuherd.jobs.remove import wait_until_gone

    begun, due = here.clock.now(), here.clock.now() + FIRST_S
    async for what, seen in wait_until_gone(jobs, here):
        if not what:
            return WaitResult(proof=seen)
        now = here.clock.now()
        if timeout_s is not None and now >= begun + timeout_s:
            return WaitResult(waits_for=what)
        if now >= due and console.said.loud >= 0:
            await here.talk.show_message(what)
            due = now + TELL_S
        engine_control.ensure_engine(here.place, console.environ)
    raise AssertionError("it looks until it is so")


async def print_down_result(
    asked: DownOptions, jobs: Sequence[str], end: WaitResult, console: "Console"
) -> None:
    """What is proved."""
    from tpuherd.cli.job_session import print_json, print_lines

    proof = end.proof
    if asked.json_:
        zones = None if proof is None else sorted(proof.survey.zones)
        content = {"removed": list(jobs), "all_deleted": proof is not None, "zones": zones}
        await print_json(console, {**content, "waiting_for": end.waits_for})
    elif not jobs:
        await print_lines(console, "there is nothing to take down")
    elif end.waits_for:
        sentence = f"{NAME}: {end.waits_for}; the engine goes on, and `herd down` waits again"
        await console.print_notice(sentence)
    elif proof is None:
        await print_lines(
            console, f"{fold_names(jobs)}: dropped; the engine gives back what is there"
        )
    else:
        many = len(proof.survey.zones)
        await print_lines(console, f"{fold_names(jobs)}: nothing is left; {many} zones were listed")
