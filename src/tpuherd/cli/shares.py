"""`herd shares`: which part of a shared quota each user has."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@as_json
@click.pass_context
def shares(context: click.Context, json_: bool) -> ParsedCommand | None:
    """Show which part of a shared quota each user has.

    The parts of those who have jobs go by their weights. Only grants with a number of chips
    (`herd context grant --chips`) are shared.
    """
    if context.invoked_subcommand is not None:
        if json_:
            raise click.UsageError("--json belongs after the subcommand")
        return None
    return make_parsed_command("herd shares", partial(run_shares, json_))


@shares.command("set")
@click.argument("name")
@click.argument("weight", type=float)
@as_json
def set_(name: str, weight: float, json_: bool) -> ParsedCommand:
    """Give the user NAME another weight; everybody has 1 at first.

    A user of weight 2 gets twice as much of each quota as one of weight 1, while both need it. The
    store keeps the weights, for all engines; `herd events` says who changed them.
    """
    return make_parsed_command("herd shares set", partial(run_shares_set, name, weight, json_))


async def run_shares(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.shares import list_shares
    from tpuherd.views.shares_table import shares_text

    async with open_job_session(console, home, "herd shares", begins=False) as here:
        found = list_shares(here)
    if json_:
        await print_json(console, found)
    else:
        await print_lines(console, shares_text(found, **console.table_style))
    return 0


async def run_shares_set(
    name: str, weight: float, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.shares import change_weight, list_shares

    async with open_job_session(console, home, "herd shares set", begins=False) as here:
        changed = change_weight(name, weight, here)
        users = [one["user"] for one in list_shares(here)["users"] if one["jobs"]]
    if json_:
        await print_json(console, {"user": name, "weight": weight, "changed": changed})
        return 0
    said = "has the weight" if changed else "already has the weight"
    await print_lines(console, f"{name} {said} {weight:g}")
    if users and name not in users:
        await console.print_notice(
            f"No user {name} has jobs here yet; these do: {', '.join(users)}"
        )
    return 0
