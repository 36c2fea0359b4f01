"""`herd why`: explains what a job does or waits for."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.views.job_pages import why_text
from tpuherd.views.trouble_line import problem_rows

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("name", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def why(name: str | None, json_: bool) -> ParsedCommand:
    """Say in a sentence what each slot of a job does now, or waits for.

    NAME is a job (gpt) or a slot (gpt-0); it may be omitted if there is only one job.
    """
    return make_parsed_command("herd why", partial(run_why, name, json_))


async def run_why(name: str | None, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import choose_job, open_store_session
    from tpuherd.jobs.job_queries import why_as_json
    from tpuherd.store.engine_rest import is_at_rest

    name = await choose_job(name, "herd why", console)
    async with open_store_session(console) as here:
        content = why_as_json(here.store, here.now, name)
        content["problems"] = problem_rows(here.current_troubles())
        if not json_:
            await here.print_troubles()
        style = console.screen_style

        def text(told: Mapping[str, Any]) -> str:
            current = told["engine"] or is_at_rest(here.store)
            if style is None:
                return why_text(told, current=current)
            from tpuherd.views.event_screen import why_screen

            return why_screen(told, current=current, **style)

        await here.print_content(content, text, json_=json_)
    return 0
