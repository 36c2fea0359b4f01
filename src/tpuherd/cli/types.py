"""`herd types`: what one gets with a TPU type, where, and at what price."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("type_", metavar="[TYPE]", required=False)
@click.option("--zones", is_flag=True, help="Show how zones have answered your requests.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def types(type_: str | None, zones: bool, json_: bool) -> ParsedCommand:
    """Show what TPU types are: chips, memory, hosts, images, zones and list prices.

    TYPE is one type, such as v4-32, or a generation, such as v5e. All of it is from the tables of
    this version, which have dates. With --zones, from your events: each zone's refusals and grants,
    its time until READY and the life of its nodes.
    """
    run = run_zones if zones else run_types
    return make_parsed_command("herd types", partial(run, type_ or "", json_))


async def run_types(name: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json
    from tpuherd.views.type_pages import type_rows, types_text

    rows = type_rows(name)
    if json_:
        await print_json(console, rows)
    else:
        await console.print_text(types_text(name, rows, **console.table_style), coloured=True)
    return 0


async def run_zones(name: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import capacity_rows
    from tpuherd.views.capacity_table import capacity_text
    from tpuherd.views.type_pages import type_rows

    named = {one["type"] for one in type_rows(name)} if name else None
    async with open_store_session(console) as here:
        rows = capacity_rows(here.store, here.now)
        if named is not None:
            rows = [one for one in rows if one["type"] in named]
        style = console.screen_style
        if style is None:
            text = partial(capacity_text, **console.table_style)
        else:
            from tpuherd.views.plan_screens import capacity_screen

            text = partial(capacity_screen, **style)
        await here.print_content(rows, text, json_=json_)
    return 0
