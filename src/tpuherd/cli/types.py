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
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def types(type_: str | None, json_: bool) -> ParsedCommand:
    """Show what TPU types are: chips, memory, hosts, images, zones and list prices.

    TYPE is one type, such as v4-32, or a generation, such as v5e. All of it is from the tables of
    this version, which have dates; `herd capacity` shows how zones have answered.
    """
    return make_parsed_command("herd types", partial(run_types, type_ or "", json_))


async def run_types(name: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json
    from tpuherd.views.type_pages import type_rows, types_text

    rows = type_rows(name)
    if json_:
        await print_json(console, rows)
    else:
        await console.print_text(types_text(name, rows, **console.table_style), coloured=True)
    return 0
