"""`herd adopt`: takes over nodes that a lost store or another owner left behind."""

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
    """Take over nodes and requests of yours, or of OWNER, that belong to no job.

    Each job is rebuilt from the metadata of its node. From then on OWNER's resources count as
    yours.
    """
    return make_parsed_command("herd adopt", partial(run_adopt, owner, json_))


async def run_adopt(owner: str | None, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.adopt_resources import adopt_resources

    async with open_job_session(console, home, "herd adopt") as here:
        found = await adopt_resources(owner, here)
    if json_:
        await print_json(console, found.as_json())
        return 0
    await print_lines(
        console, f"Adopted {fold_names(found.bids)}" if found.bids else "Nothing to adopt"
    )
    if found.unknown:
        left = fold_names(found.unknown)
        await console.print_notice(f"{left}: the metadata has no job; `herd gc NAME` deletes it")
    return 0
