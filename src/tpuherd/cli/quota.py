"""`herd quota`: what the project may have, and what uses it."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def quota(json_: bool) -> ParsedCommand:
    """Show what the project may have, what is used, and what each job takes.

    Limits are Google's quotas and the grants that you declared with `herd context grant`.
    Requests that wait for capacity count as used.
    """
    return make_parsed_command("herd quota", partial(run_quota, json_))


async def run_quota(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.quota_report import report_quota
    from tpuherd.views.quota_table import quota_text

    async with open_job_session(console, home, "herd quota", begins=False) as here:
        found = (await report_quota(here.place, await here.cloud(), here.clock)).as_json()
    if json_:
        await print_json(console, found)
    else:
        await print_lines(console, quota_text(found, **console.table_style))
        if found["trouble"]:
            await console.print_notice(f"Google's quotas are not shown: {found['trouble']}")
    return 0
