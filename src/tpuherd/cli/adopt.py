"""`herd adopt`: takes over what a lost store, or somebody else, has left."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("owner", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def adopt(owner: str | None, json_: bool) -> ParsedCommand:
    """Take over what bears our name, or that of another OWNER, and is nobody's wish.

    The job comes from what stands in the node's own metadata. From then on that owner's name
    counts as ours.
    """
    return make_parsed_command("herd adopt", partial(run_adopt, owner, json_))


async def run_adopt(owner: str | None, json_: bool, console: "Console", home: "HostAccess") -> int:
    """Theirs, or our own that the store has lost."""
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.adopt_resources import adopt_resources

    async with open_job_session(console, home, "herd adopt") as here:
        found = await adopt_resources(owner, here)
    if json_:
        await print_json(console, found.as_json())
        return 0
    await print_lines(
        console, f"{fold_names(found.bids)} adopted" if found.bids else "there is nothing to adopt"
    )
    if found.unknown:
        left = fold_names(found.unknown)
        await console.print_notice(f"{left}: no job stands in their metadata; herd gc deletes them")
    return 0
