"""`herd run` and `herd up`: submit a job, or get a node to keep."""

import re
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.job_options import COMMAND, RARE, JobArguments, JobCommand, add_field_options
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

TPU_TYPE = re.compile(r"(v[0-9]|tpu)[a-z0-9]*-[0-9]+")
NO_JOB = (
    "give a script or a job: herd run train.py --accelerator v4-8, herd run FILE, or"
    " herd run --name NAME … -- COMMAND"
)


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
@click.argument("file", metavar="[FILE] [-- WORDS]", required=False)
@add_job_options
@click.option(
    "--no-requirements",
    "installs",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Install nothing that the script's folder asks for.",
)
@click.option(
    "--save", metavar="FILE", default="", hidden=True, help="Write a script's job file, too."
)
@add_follow_options
@click.pass_context
def run(context: click.Context, /, file: str | None, **said: Any) -> ParsedCommand:
    """Run a script or a job until it is done, across preemptions.

    FILE is a script and WORDS its arguments: its repository or folder is shipped, and what that
    requires is installed. Or FILE is a job file: options replace its fields, WORDS its `run`.
    """
    from tpuherd.cli.submit_job import RunOptions, run_job
    from tpuherd.jobs.script_folder import is_script
    from tpuherd.model.slots_and_plan import Goal

    choices = {word: said.pop(word) for word in ("follow", "waits", "save")}
    command, installs, script = context.meta.get(COMMAND, []), said.pop("installs"), None
    if file is not None and is_script(Path(file).expanduser()):
        script, file = file, None
    elif choices["save"] or not installs:
        word = "--save" if choices["save"] else "--no-requirements"
        raise click.UsageError(f"{word} is for a script: herd run train.py {word} …")
    elif file is None and not said["name"]:
        raise click.UsageError(NO_JOB)
    elif file is None and not command and not any(x.startswith("run=") for x in said["settings"]):
        raise click.UsageError("give a command: herd run --name NAME … -- COMMAND")
    options = parse_run_options(file, command, said, script=script, installs=installs)
    asked = RunOptions(goal=Goal.RUN, **choices, **options)
    return make_parsed_command("herd run", partial(run_job, asked), attentive=True)


@click.command(cls=JobCommand)
@click.argument("file", metavar="[TYPE|FILE]", required=False)
@add_job_options
@click.pass_context
def up(context: click.Context, /, file: str | None, **said: Any) -> ParsedCommand:
    """Get a node with your setup and code on it, and keep it.

    This is a job without a running command: use `herd exec` and `herd ssh` on it. `herd run` with
    the same name starts the command there. TYPE is a TPU type such as v4-8, FILE a job file. On a
    terminal you see what happens until the node is ready; Ctrl+C leaves it to herd.
    """
    from tpuherd.cli.submit_job import RunOptions, run_job
    from tpuherd.jobfile.typed_script import describe_node
    from tpuherd.model.slots_and_plan import Goal

    typed = None
    if file is not None and TPU_TYPE.fullmatch(file) and not Path(file).exists():
        if said["accelerator"]:
            raise click.UsageError(f"{file} and --accelerator say the type twice: omit one")
        typed = describe_node(file, has_name=bool(said["name"]))
        file = None
    elif file is None and not said["name"]:
        raise click.UsageError("give a node: herd up v4-8, or herd up FILE")
    document = typed.document if typed is not None else None
    options = parse_run_options(file, (), said, document=document)
    asked = RunOptions(goal=Goal.IDLE, follow=False, typed=typed, **options)
    return make_parsed_command("herd up", partial(run_job, asked), attentive=True)


def parse_run_options(
    file: str | None, command: Any, said: dict[str, Any], **more: Any
) -> dict[str, Any]:
    kept = {word: said.pop(word) for word in ("yes", "dry", "json_")}
    rest: dict[str, Any] = {word: tuple(said.pop(word)) for word in ("env", "secrets", "settings")}
    rest |= {"command": tuple(command), **more}
    return {"said": JobArguments(file=file, fields=said, **rest), **kept}
