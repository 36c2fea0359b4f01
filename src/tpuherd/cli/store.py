"""`herd engine store`: where the jobs are kept, and moving them."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

HERE = "here"


@click.group()
def store() -> None:
    """Move the jobs of a project to PostgreSQL, or to a file."""


@store.command()
@click.argument("target", metavar="URL|here")
def move(target: str) -> ParsedCommand:
    """Move all jobs and their history to URL, or here.

    URL is that of a PostgreSQL database; `here` is a file on this machine. No engine may run
    meanwhile: herd engine stop. From then on the old store refuses to open. To finish an
    interrupted move, repeat it. Logs, series, code and secrets stay on this machine.
    """
    return make_parsed_command("herd engine store move", partial(run_store_move, target))


async def run_store_move(target: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines
    from tpuherd.clock import WallClock
    from tpuherd.errors import InvalidInput
    from tpuherd.jobs.move_store import move_store_here, move_store_to
    from tpuherd.settings import project_access

    del home  # the hosts do not notice
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    now = WallClock().now()
    if target == HERE:
        if scope.database is None:
            raise InvalidInput(
                "the jobs are in a file on this machine",
                hint="name the database that has them: HERD_STORE=URL herd engine store move here",
            )
        said = move_store_here(scope, scope.database, now)
    else:
        said = move_store_to(scope, target, console.environ, now)
    await print_lines(console, said)
    return 0
