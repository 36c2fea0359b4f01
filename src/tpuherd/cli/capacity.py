"""`herd capacity`: how zones have answered requests."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.views.capacity_table import capacity_text

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def capacity(json_: bool) -> ParsedCommand:
    """Show each zone's refusals and grants, its time until READY and the life of its nodes."""
    return make_parsed_command("herd capacity", partial(run_capacity, json_))


async def run_capacity(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import capacity_rows

    async with open_store_session(console) as here:
        rows = capacity_rows(here.store, here.now)
        style = console.screen_style
        if style is None:
            text = partial(capacity_text, **console.table_style)
        else:
            from tpuherd.views.plan_screens import capacity_screen

            text = partial(capacity_screen, **style)
        await here.print_content(rows, text, json_=json_)
    return 0
