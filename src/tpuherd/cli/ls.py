"""`herd ls`: lists all jobs."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.views.job_pages import jobs_text

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def ls(json_: bool) -> ParsedCommand:
    """List all jobs with their state, zone, goodput and cost.

    READY is the number of ready nodes, out of those that the job asks for.
    """
    return make_parsed_command("herd ls", partial(run_ls, json_))


async def run_ls(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import job_rows

    async with open_store_session(console) as here:
        rows = job_rows(here.store, here.now)
        await here.print_troubles(apart=json_)
        style = console.screen_style
        if style is None:
            text = partial(jobs_text, **console.table_style)
        else:
            from tpuherd.views.job_screens import jobs_screen

            text = partial(jobs_screen, **style)
        await here.print_content(rows, text, json_=json_)
    return 0
