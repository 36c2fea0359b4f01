"""`herd run` and `herd up`: submit a job, or get a node to keep."""

from collections.abc import Collection
from functools import partial
from typing import Any

import click

from tpuherd.cli.job_options import COMMAND, RARE, JobArguments, JobCommand, add_field_options
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


def add_job_options(function: Any, rare: Collection[str] = RARE) -> Any:
    """Add the options of both commands."""
    for option in reversed((
        partial(add_field_options, rare=rare),
        click.option("-e", "--env", multiple=True, metavar="NAME=VALUE",
                     help="An environment variable."),
        click.option("--secret", "secrets", multiple=True, metavar="NAME",
                     help="A variable of your environment; it is never shown."),
        click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE",
                     help="Any field of a job file, such as retry.failures=5."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--dry-run", "dry", is_flag=True,
                     help="Only check the job, and show zones and prices."),
        click.option("--json", "json_", is_flag=True, help="Print JSON."),
    )):  # fmt: skip
        function = option(function)
    return function


def add_follow_options(function: Any) -> Any:
    """Add the options of commands that can follow a job."""
    for option in (
        click.option(
            "--wait",
            "waits",
            is_flag=True,
            hidden=True,
            help="Wait for the end without showing output.",
        ),
        click.option(
            "--follow/--detach",
            "follow",
            default=None,
            help="Show output until the end (default on a terminal).",
        ),
    ):
        function = option(function)
    return function


@click.command(cls=JobCommand)
@click.argument("file", metavar="[FILE] [-- COMMAND]", required=False)
@add_job_options
@add_follow_options
@click.pass_context
def run(context: click.Context, /, file: str | None, **said: Any) -> ParsedCommand:
    """Run a job until it is done, across preemptions.

    FILE is a job file; options replace its fields, and COMMAND its `run`. If the job exists,
    changes are shown first; a finished job runs again.
    """
    from tpuherd.cli.submit_job import RunOptions, run_job
    from tpuherd.model.slots_and_plan import Goal

    choices = {word: said.pop(word) for word in ("follow", "waits")}
    command = context.meta.get(COMMAND, [])
    if file is None and not said["name"]:
        raise click.UsageError("give a job: herd run FILE, or herd run --name NAME … -- COMMAND")
    if file is None and not command and not any(one.startswith("run=") for one in said["settings"]):
        raise click.UsageError("give a command: herd run --name NAME … -- COMMAND")
    asked = RunOptions(goal=Goal.RUN, **choices, **parse_run_options(file, command, said))
    return make_parsed_command("herd run", partial(run_job, asked), attentive=True)


@click.command(cls=JobCommand)
@click.argument("file", required=False)
@add_job_options
@click.pass_context
def up(context: click.Context, /, file: str | None, **said: Any) -> ParsedCommand:
    """Get a node with your setup and code on it, and keep it.

    This is a job without a running command: use `herd exec` and `herd ssh` on it. `herd run` with
    the same name starts the command there.
    """
    from tpuherd.cli.submit_job import RunOptions, run_job
    from tpuherd.model.slots_and_plan import Goal

    if file is None and not said["name"]:
        raise click.UsageError(
            "give a node: herd up FILE, or herd up --name NAME --accelerator TYPE"
        )
    asked = RunOptions(goal=Goal.IDLE, follow=False, **parse_run_options(file, (), said))
    return make_parsed_command("herd up", partial(run_job, asked), attentive=True)


def parse_run_options(file: str | None, command: Any, said: dict[str, Any]) -> dict[str, Any]:
    kept = {word: said.pop(word) for word in ("yes", "dry", "json_")}
    rest: dict[str, Any] = {word: tuple(said.pop(word)) for word in ("env", "secrets", "settings")}
    return {"said": JobArguments(file=file, fields=said, command=tuple(command), **rest), **kept}
