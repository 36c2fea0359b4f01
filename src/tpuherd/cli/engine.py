"""`herd engine`: look at the process that keeps jobs alive, start it, end it, read its log."""

import os
from functools import partial

import click

from tpuherd.cli.invocation import named_world
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.print_text import print_text
from tpuherd.errors import HerdError


@click.group()
def engine() -> None:
    """Look at the process that keeps jobs alive, start it, or end it."""


@engine.command()
def run() -> int:
    """Be the engine, in the foreground, until it is ended or nothing is left to do."""
    from tpuherd.cli import via_client
    from tpuherd.engine.engine_process import run_engine
    from tpuherd.settings import project_access

    try:
        print_text(
            run_engine(
                project_access.resolve_access(os.environ, world=named_world()),
                os.environ,
                aloud=True,
            )
        )
    except HerdError as error:
        return via_client.print_error("herd engine run", error)
    return 0


@engine.command()
def start() -> ParsedCommand:
    """Start it in the background, if none runs. Commands that need it do so by themselves."""
    from tpuherd.cli.engine_do import run_engine_start

    return make_parsed_command("herd engine start", run_engine_start)


@engine.command()
def stop() -> ParsedCommand:
    """End it. What runs on hosts goes on, for 72 hours without an engine at the most."""
    from tpuherd.cli.engine_do import run_engine_stop

    return make_parsed_command("herd engine stop", run_engine_stop)


@engine.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> ParsedCommand:
    """Show whether it runs, where, and how long its lease lasts."""
    from tpuherd.cli.engine_do import run_engine_status

    return make_parsed_command("herd engine status", partial(run_engine_status, json_))


@engine.command()
def acknowledge() -> ParsedCommand:
    """Stop the notice that the store was damaged and set aside."""
    from tpuherd.cli.engine_do import run_engine_acknowledge

    return make_parsed_command("herd engine acknowledge", run_engine_acknowledge)


@engine.command()
@click.option("-n", "--lines", default=50, show_default=True, help="So many of the last lines.")
def logs(lines: int) -> ParsedCommand:
    """Print the last lines of its own log."""
    from tpuherd.cli.engine_do import run_engine_logs

    return make_parsed_command("herd engine logs", partial(run_engine_logs, lines))


@engine.command()
def install() -> int:
    """Write its unit for systemd, so that it is up after a reboot; says what is left to do."""
    from tpuherd.cli import via_client
    from tpuherd.cli.systemd_unit import install_unit as written
    from tpuherd.settings import project_access

    try:
        file, todo = written(
            project_access.resolve_access(os.environ, world=named_world()), os.environ
        )
    except HerdError as error:
        return via_client.print_error("herd engine install", error)
    print_text(f"{file} is written. Now say:", err=True)
    click.echo(todo)
    return 0


@engine.command()
@click.option("--to", "target", metavar="USER@HOST", help="The machine where it is to go.")
@click.option("--back", is_flag=True, help="From there to this one.")
def move(target: str | None, back: bool) -> int:
    """Take the jobs of the current context to another machine's engine, or back.

    What runs on hosts goes on meanwhile. Commands of this context are done there from then on.
    """
    from tpuherd.cli import engine_move, via_client

    if bool(target) == back:
        raise click.UsageError("say --to USER@HOST, or --back")
    try:
        said = (
            engine_move.move_away(target, os.environ)
            if target
            else engine_move.move_back(os.environ)
        )
        print_text(said)
    except HerdError as error:
        return via_client.print_error("herd engine move", error)
    return 0
