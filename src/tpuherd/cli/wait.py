"""`herd wait`: until jobs have ended."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import TIMED_OUT
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--timeout", "timeout_s", type=Duration(), help="Wait no longer than this (5m, 2h); exit 124."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON at the end.")
def wait(names: tuple[str, ...], timeout_s: float | None, json_: bool) -> ParsedCommand:
    """Wait until jobs have ended, or the nodes of `herd up` are ready.

    Patterns are allowed: herd wait 'gpt-*'. The exit status is 0 if all of it succeeded; that of
    the command if it failed for good; and 5 if the job was given up for another reason, stopped or
    dropped. Of several jobs it is the greatest.
    """
    return make_parsed_command("herd wait", partial(run_wait, names, timeout_s, json_))


async def run_wait(
    names: tuple[str, ...],
    timeout_s: float | None,
    json_: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    """Until all have ended, or for so long: the greatest of their statuses."""
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import match_jobs, watch_job_ends

    async with open_store_session(console) as here:
        jobs = match_jobs(names, here.store.stored_jobs())
    ended: dict[str, tuple[int, str]] = {}
    # Who has read lets an engine begin: only with one is there something to wait for.
    async with open_store_session(console) as here:
        async for job, status, why in watch_job_ends(
            jobs, here.store, here.clock, timeout_s=timeout_s
        ):
            ended[job] = status, why
            if not json_:
                await console.print_notice(f"herd wait: {why}")
                await console.flush()
        left = [job for job in jobs if job not in ended]
        ended |= {job: (TIMED_OUT, f"{job} goes on") for job in left}
        total = TIMED_OUT if left else max(status for status, _ in ended.values())
        whys = [ended[job][1] for job in jobs]
        if json_:
            rows = [{"job": one, "status": ended[one][0], "why": ended[one][1]} for one in jobs]
            about = {"job": fold_names(jobs), "status": total, "why": "; ".join(whys), "jobs": rows}
            await here.print_content(about, str, json_=True)
        for job in left if not json_ else ():
            await console.print_notice(f"herd wait: {job} goes on")
    return total
