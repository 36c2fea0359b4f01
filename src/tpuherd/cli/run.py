"""`herd run` and `herd up`: wish for a job, or for a node to keep."""

from functools import partial
from typing import Any

import click

from tpuherd.cli.job_options import COMMAND, JobArguments, JobCommand, add_field_options
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


def add_job_options(function: Any) -> Any:
    """The options that both have."""
    for option in reversed((
        add_field_options,
        click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable."),
        click.option("--secret", "secrets", multiple=True, metavar="NAME",
                     help="A variable of your environment whose value is kept out of files."),
        click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE",
                     help="Any field of a job file: retry.failures=5."),
        click.option("-y", "--yes", is_flag=True, help="Ask nothing."),
        click.option("--dry-run", "dry", is_flag=True, help="Only show what it comes to."),
        click.option("--json", "json_", is_flag=True, help="Print JSON."),
    )):  # fmt: skip
        function = option(function)
    return function


def add_follow_options(function: Any) -> Any:
    """The options of what ends by itself."""
    for option in (
        click.option("--wait", "waits", is_flag=True, help="Wait for its end, show no output."),
        click.option(
            "--follow/--detach",
            "follow",
            default=None,
            help="Show what happens until it ends, and exit as the command does; the default on a"
            " terminal. Ctrl+C lets it go on.",
        ),
    ):
        function = option(function)
    return function


@click.command(cls=JobCommand)
@click.argument("file", required=False)
@add_job_options
@add_follow_options
@click.pass_context
def run(context: click.Context, /, file: str | None, **said: Any) -> ParsedCommand:
    """Run a job until it is done, whatever dies.

    The job is FILE, or is said by options, which go before what FILE says; a command behind --
    goes before its `run`. Of a name that is there already the same does nothing, and a change is
    shown before it is made; what has ended runs again.

    \b
    herd run job.yaml
    herd run --name gpt --accelerator v4-32 --workdir . -- python3 train.py
    """
    from tpuherd.cli.submit_job import RunOptions, run_job
    from tpuherd.model.slots_and_plan import Goal

    ways = {word: said.pop(word) for word in ("follow", "waits")}
    command = context.meta.get(COMMAND, [])
    if file is None and not said["name"]:
        raise click.UsageError("say what: herd run FILE, or herd run --name NAME … -- COMMAND")
    if file is None and not command and not any(one.startswith("run=") for one in said["settings"]):
        raise click.UsageError("say what to run: herd run --name NAME … -- COMMAND")
    asked = RunOptions(goal=Goal.RUN, **ways, **parse_run_options(file, command, said))
    return make_parsed_command("herd run", partial(run_job, asked), attentive=True)


@click.command(cls=JobCommand)
@click.argument("file", required=False)
@add_job_options
@click.pass_context
def up(context: click.Context, /, file: str | None, **said: Any) -> ParsedCommand:
    """Get a node, set up and with your code on it, and keep it.

    It is a job whose command is not run: `herd exec` and `herd ssh` work on it, and `herd run` of
    the same name starts its command there.

    \b
    herd up --name dev --accelerator v4-8
    """
    from tpuherd.cli.submit_job import RunOptions, run_job
    from tpuherd.model.slots_and_plan import Goal

    if file is None and not said["name"]:
        raise click.UsageError("say what: herd up FILE, or herd up --name NAME --accelerator TYPE")
    asked = RunOptions(goal=Goal.IDLE, follow=False, **parse_run_options(file, (), said))
    return make_parsed_command("herd up", partial(run_job, asked), attentive=True)


def parse_run_options(file: str | None, command: Any, said: dict[str, Any]) -> dict[str, Any]:
    """What was said, by its meaning."""
    kept = {word: said.pop(word) for word in ("yes", "dry", "json_")}
    rest = {word: tuple(said.pop(word)) for word in ("env", "secrets", "settings")}
    return {"said": JobArguments(file=file, fields=said, command=tuple(command), **rest), **kept}
