"""`herd status`: shows all about one job."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.views.job_pages import job_text
from tpuherd.views.trouble_line import problem_rows

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("name", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(name: str | None, json_: bool) -> ParsedCommand:
    """Show how a job or a slot is: its nodes, attempts, time and cost.

    NAME is a job (gpt) or a slot (gpt-0); it may be omitted if there is only one job. Each second
    since submission is counted once. A terminal shows first what is wrong and what to type next,
    then a timeline of each slot, with curves of its step rate and loss.
    """
    return make_parsed_command("herd status", partial(run_status, name, json_))


async def run_status(name: str | None, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import choose_job, open_store_session
    from tpuherd.jobs.job_queries import job_status_accounts

    name = await choose_job(name, "herd status", console)
    async with open_store_session(console) as here:
        page, accounts = job_status_accounts(here.store, here.now, name)
        page["problems"] = problem_rows(here.current_troubles())
        if not json_:
            await here.print_troubles()
        style = console.screen_style
        if style is None or json_:
            text = partial(job_text, **console.table_style)
        else:
            from tpuherd.jobs.slot_curves import slot_curves
            from tpuherd.views.job_screens import status_screen

            slots = [slot["slot"] for slot in page["slot_details"]]
            curves = slot_curves(here.store, accounts, slots)
            text = partial(status_screen, accounts=accounts, curves=curves, **style)
        await here.print_content(page, text, json_=json_)
    return 0
