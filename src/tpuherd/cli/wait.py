"""`herd wait`: waits until jobs have ended."""

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
@click.argument("names", nargs=-1)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    help="Stop waiting after this long (5m, 2h); exit 124.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON when the waiting ends.")
def wait(names: tuple[str, ...], timeout_s: float | None, json_: bool) -> ParsedCommand:
    """Wait until jobs have ended, or until the nodes of `herd up` are ready.

    Patterns are allowed: herd wait 'gpt-*'. NAMES may be omitted if there is only one job. The exit
    status is 0 if the job succeeded, that of its command if it failed, and 5 if it was stopped, was
    deleted, or gave up for another reason. For several jobs, it is the highest.
    """
    return make_parsed_command("herd wait", partial(run_wait, names, timeout_s, json_))


async def run_wait(
    names: tuple[str, ...],
    timeout_s: float | None,
    json_: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    """Return the highest status of all jobs, or TIMED_OUT."""
    from tpuherd.cli.store_session import choose_job, open_store_session
    from tpuherd.commands.job_outputs import print_place
    from tpuherd.jobs.job_queries import match_jobs, watch_job_ends

    names = names or (await choose_job(None, "herd wait", console),)
    async with open_store_session(console) as here:
        jobs = match_jobs(names, here.store.stored_jobs())
    ended: dict[str, tuple[int, str]] = {}
    # Opening the session starts an engine; without one the wait would never end.
    async with open_store_session(console) as here:
        async for job, status, why in watch_job_ends(
            jobs, here.store, here.clock, timeout_s=timeout_s
        ):
            ended[job] = status, why
            if not json_:
                await console.print_notice(f"herd wait: {why}")
                await print_place(job, "herd wait", console)
                await console.flush()
        left = [job for job in jobs if job not in ended]
        ended |= {job: (TIMED_OUT, f"{job} is still running") for job in left}
        total = TIMED_OUT if left else max(status for status, _ in ended.values())
        whys = [ended[job][1] for job in jobs]
        if json_:
            rows = [{"job": one, "status": ended[one][0], "why": ended[one][1]} for one in jobs]
            about = {"job": fold_names(jobs), "status": total, "why": "; ".join(whys), "jobs": rows}
            await here.print_content(about, str, json_=True)
        for job in left if not json_ else ():
            await console.print_notice(f"herd wait: {job} is still running")
    return total
