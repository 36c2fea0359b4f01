"""`herd quota`: what the project may have, what uses it, and each user's share."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.option(
    "--share",
    metavar="USER=WEIGHT",
    help="Give a user another weight: 2 is twice as much of each quota as 1, while both need it.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def quota(share: str | None, json_: bool) -> ParsedCommand:
    """Show what the project may have, what each job takes, and each user's share.

    Limits are Google's quotas and the grants that you declared with `herd context grant`.
    Requests that wait for capacity count as used. Users share the grants with a number of chips,
    by their weights: everybody has 1 at first. `herd events` says who changed a weight.
    """
    if share is None:
        return make_parsed_command("herd quota", partial(run_quota, json_))
    user, weight = parse_share(share)
    return make_parsed_command("herd quota", partial(run_share, user, weight, json_))


def parse_share(text: str) -> tuple[str, float]:
    user, _, weight = text.rpartition("=")
    try:
        return user, float(weight)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not USER=WEIGHT, such as ana=2", param_hint="--share"
        ) from None


async def run_quota(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.quota_report import report_quota
    from tpuherd.jobs.shares import list_shares
    from tpuherd.views.quota_table import quota_text
    from tpuherd.views.shares_table import shares_text

    async with open_job_session(console, home, "herd quota", begins=False) as here:
        found = (await report_quota(here.place, await here.cloud(), here.clock)).as_json()
        found["shares"] = list_shares(here)
    if json_:
        await print_json(console, found)
        return 0
    style = console.table_style
    parts = quota_text(found, **style), shares_text(found["shares"], **style)
    await print_lines(console, "\n\n".join(filter(None, parts)))
    if found["trouble"]:
        await console.print_notice(f"Google's quotas are not shown: {found['trouble']}")
    return 0


async def run_share(
    user: str, weight: float, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.shares import change_weight, list_shares

    async with open_job_session(console, home, "herd quota", begins=False) as here:
        changed = change_weight(user, weight, here)
        users = [one["user"] for one in list_shares(here)["users"] if one["jobs"]]
    if json_:
        await print_json(console, {"user": user, "weight": weight, "changed": changed})
        return 0
    said = "has the weight" if changed else "already has the weight"
    await print_lines(console, f"{user} {said} {weight:g}")
    if users and user not in users:
        await console.print_notice(
            f"No user {user} has jobs here yet; these do: {', '.join(users)}"
        )
    return 0
