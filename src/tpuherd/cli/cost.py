"""`herd cost`: shows where time and money went."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("name", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=14,
    show_default=True,
    help="Without NAME: the number of days to show.",
)
def cost(name: str | None, json_: bool, days: int) -> ParsedCommand:
    """Show where the time and money of a job went, or what all jobs cost.

    NAME is a job (gpt), also a removed one, or a slot (gpt-0). Without NAME: what all jobs cost, by
    job and by day, and what they will cost at this rate.
    """
    return make_parsed_command("herd cost", partial(run_cost, name, days, json_=json_))


async def run_cost(
    name: str | None, days: int, console: "Console", home: "HostAccess", *, json_: bool
) -> int:
    from tpuherd.cli.store_session import format_moment, open_store_session
    from tpuherd.jobs import cost_queries
    from tpuherd.views.cost_text import cost_text
    from tpuherd.views.job_cost_text import job_cost_text

    async with open_store_session(console) as here:
        show_time = partial(format_moment, now=here.now)
        if name is None:
            content, text = cost_queries.all_costs(here.store, here.now, days), cost_text
        else:
            content, text = cost_queries.job_cost(here.store, here.now, name), job_cost_text
        show = partial(text, show_time=show_time, **console.table_style)
        await here.print_content(content, show, json_=json_)
    return 0
