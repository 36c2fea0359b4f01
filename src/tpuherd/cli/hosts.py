"""`herd hosts`: the hosts of a target with their addresses."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

HEAD = ("HOST", "NODE", "ZONE", "INTERNAL", "EXTERNAL")


@click.command()
@click.argument("target")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def hosts(target: str, json_: bool) -> ParsedCommand:
    """List the hosts of TARGET with their addresses, as the cloud has them now.

    A replaced node has other addresses; `herd forward` follows it.
    """
    return make_parsed_command("herd hosts", partial(run_hosts, target, json_))


async def run_hosts(target: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json
    from tpuherd.commands.command_types import label_hosts, resolve_hosts
    from tpuherd.views.format_text import NOTHING, format_table

    place, reach = await home.open_remote(console)
    found = await resolve_hosts(target, place, reach)
    names = label_hosts(found)
    rows = [
        {
            "host": names[one],
            "node": one.node,
            "zone": one.zone,
            "worker": one.worker,
            "internal_ip": one.internal_ip,
            "external_ip": one.external_ip,
        }
        for one in found
    ]
    if json_:
        await print_json(console, rows)
        return 0
    cells = [
        (names[one], one.node, one.zone, one.internal_ip, one.external_ip or NOTHING)
        for one in found
    ]
    text = format_table([HEAD, *cells], **console.table_style)
    await console.print_text(text, coloured=True)
    return 0
