"""`herd gc`: lists cloud resources that herd created but no job uses."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import ABORTED
from tpuherd.model.observed import BidObservation
from tpuherd.views.format_text import format_table

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("names", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def gc(names: tuple[str, ...], yes: bool, json_: bool) -> ParsedCommand:
    """List cloud resources that herd created for you but no job uses, with their price.

    Only the resources that you name are deleted: herd gc NAME. Deletions that were recorded
    before but did not succeed are repeated.
    """
    return make_parsed_command("herd gc", partial(run_gc, names, yes, json_))


async def run_gc(
    names: tuple[str, ...], yes: bool, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.orphans import collect_orphans

    async with open_job_session(console, home, "herd gc", yes=yes, begins=False) as here:
        found = await collect_orphans(names, here)
    if found is None:
        return ABORTED
    if json_:
        await print_json(console, found.as_json())
        return 0
    for bid in found.withdrawn:
        await print_lines(console, f"Deleting {bid}")
    if found.orphans:
        await print_lines(console, orphans_table(found.orphans, console.line_width(1)))
    elif not found.withdrawn:
        await print_lines(console, f"No orphans in {found.zones} zones")
    if found.silent:
        await console.print_notice(f"no answer from {', '.join(found.silent)}")
    return 0


def orphans_table(strays: Mapping[str, BidObservation], width: int | None = None) -> str:
    """Return a table of orphans with their price and the command that deletes each."""
    from tpuherd.cli.job_session import format_dollars
    from tpuherd.jobs.cloud_inventory import hourly_price, state_text

    rows = [("NAME", "ZONE", "STATE", "PER HOUR", "DELETE WITH")]
    for bid, sight in strays.items():
        price = format_dollars(hourly_price(sight))
        rows.append((bid, sight.zone, state_text(sight), price, f"herd gc {bid}"))
    return format_table(rows, width=width) + "\n`herd adopt` takes over those whose job is known."
