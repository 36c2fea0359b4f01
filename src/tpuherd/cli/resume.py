"""`herd resume`: resumes jobs that were stopped or gave up."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.stop import change_goals, print_changes

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def resume(names: tuple[str, ...], json_: bool) -> ParsedCommand:
    """Resume jobs that were stopped or gave up.

    Their count of failures starts again at zero; RUN_ID stays the same.
    """
    return make_parsed_command("herd resume", partial(run_resume, names, json_))


async def run_resume(
    names: tuple[str, ...], json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session
    from tpuherd.jobs import submit

    async with open_job_session(console, home, "herd resume") as here:
        made = change_goals(names, submit.resume_job, here)
    await print_changes(made, ("Resumed {}", "{} is already running"), json_, console)
    return 0
