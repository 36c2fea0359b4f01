"""`herd gc`: what bears our name and is nobody's wish."""

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
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def gc(names: tuple[str, ...], yes: bool, json_: bool) -> ParsedCommand:
    """Show what bears our name in any zone and is nobody's wish, with what it costs.

    Nothing is deleted that is not recorded as withdrawn, or named here: herd gc NAME. What was
    withdrawn and is still there is withdrawn again.
    """
    return make_parsed_command("herd gc", partial(run_gc, names, yes, json_))


async def run_gc(
    names: tuple[str, ...], yes: bool, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    """Look, carry out, show; delete what is named."""
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
        await print_lines(console, f"{bid} is being deleted")
    if found.strays:
        await print_lines(console, orphans_table(found.strays, console.line_width(1)))
    elif not found.withdrawn:
        await print_lines(console, f"nothing is left over in {found.zones} zones")
    if found.silent:
        await console.print_notice(f"no answer from {', '.join(found.silent)}")
    return 0


def orphans_table(strays: Mapping[str, BidObservation], width: int | None = None) -> str:
    """With what they cost, and the one command for each."""
    from tpuherd.cli.job_session import format_dollars
    from tpuherd.jobs.cloud_inventory import hourly_price, state_text

    rows = [("NAME", "ZONE", "STATE", "PER HOUR", "DELETE IT BY")]
    for bid, sight in strays.items():
        price = format_dollars(hourly_price(sight))
        rows.append((bid, sight.zone, state_text(sight), price, f"herd gc {bid}"))
    return format_table(rows, width=width) + "\nherd adopt takes over those whose job is known"
