"""`herd stop` and `herd resume`: end jobs and give their nodes back, or run them again."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.user_option import other_user
from tpuherd.model.stored_job import StoredJob

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.jobs.open_project import Session


#: What is printed of a job: when it changed, and when nothing was to be done.
SENTENCES = {
    "stop": ("Stopped {}", "{} is already stopped or done"),
    "resume": ("Resumed {}", "{} is already running"),
}


@click.command()
@click.argument("names", nargs=-1, required=True)
@other_user
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def stop(names: tuple[str, ...], user: str | None, json_: bool) -> ParsedCommand:
    """Stop jobs and give their nodes back, but keep the jobs.

    Commands are asked to end and have their grace; `herd resume` continues from the last
    checkpoint, on new nodes.
    """
    return make_parsed_command("herd stop", partial(run_goal_change, "stop", names, user, json_))


async def run_goal_change(
    verb: str,
    names: tuple[str, ...],
    user: str | None,
    json_: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    from tpuherd.cli.job_session import open_job_session
    from tpuherd.jobs import submit

    change = submit.stop_job if verb == "stop" else submit.resume_job
    async with open_job_session(console, home, f"herd {verb}", acting_for=user) as session:
        changed = change_goals(names, change, session)
    await print_changes(changed, SENTENCES[verb], json_, console)
    return 0


def change_goals(
    names: tuple[str, ...], change: "Callable[[StoredJob, Session], bool]", session: "Session"
) -> dict[str, bool]:
    """Change the goal of each job, and return whether it changed; none if one is unknown."""
    jobs = [session.get_own_job(name) for name in dict.fromkeys(names)]
    return {job.job: change(job, session) for job in jobs}


async def print_changes(
    changed: dict[str, bool], words: tuple[str, str], json_: bool, console: "Console"
) -> None:
    from tpuherd.cli.job_session import print_json, print_lines

    if json_:
        await print_json(console, [{"job": job, "changed": did} for job, did in changed.items()])
        return
    for job, did in changed.items():
        await print_lines(console, (words[0] if did else words[1]).format(job))


@click.command()
@click.argument("names", nargs=-1, required=True)
@other_user
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def resume(names: tuple[str, ...], user: str | None, json_: bool) -> ParsedCommand:
    """Resume jobs that were stopped or gave up.

    Their count of failures starts again at zero; RUN_ID stays the same.
    """
    return make_parsed_command(
        "herd resume", partial(run_goal_change, "resume", names, user, json_)
    )
