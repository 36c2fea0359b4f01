"""`herd gc`: lists cloud resources that herd created but no job uses."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.catalogue import zones
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import ABORTED
from tpuherd.views.format_text import format_table

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.results import Orphan


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
        await print_json(console, found)
        return 0
    for bid in found.withdrawn:
        await print_lines(console, f"Deleting {bid}")
    if found.orphans:
        await print_lines(console, orphans_table(found.orphans, console.line_width(1)))
    elif not found.withdrawn:
        many = len(zones()) - len(found.unanswered_zones)
        await print_lines(console, f"No orphans in {many} zones")
    if found.unanswered_zones:
        await console.print_notice(f"no answer from {', '.join(found.unanswered_zones)}")
    return 0


def orphans_table(orphans: Sequence["Orphan"], width: int | None = None) -> str:
    """Return a table of orphans with their price and the command that deletes each."""
    from tpuherd.cli.job_session import format_dollars

    rows = [("NAME", "ZONE", "STATE", "PER HOUR", "DELETE WITH")]
    for one in orphans:
        rows.append((one.name, one.zone, one.state, format_dollars(one.per_hour), one.command))
    return (
        format_table(rows, width=width)
        + "\n`herd engine adopt` takes over those whose job is known."
    )
