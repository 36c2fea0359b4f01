"""`herd sweep`: try many parameters on many nodes, and look at what came of it."""

from functools import partial
from importlib import import_module
from typing import Any

import click

from tpuherd.cli.anywhere import add_global_options, count_global_words
from tpuherd.cli.completion import complete_arguments
from tpuherd.cli.job_options import COMMAND, JobCommand
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.run import add_follow_options, add_job_options, parse_run_options
from tpuherd.cli.via_layout import SHOWN

BEGIN = "FILE"
FURTHER = SHOWN.union((BEGIN, "-h", "--help"))


class SweepGroup(click.Group):
    """A file, or one of a few words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = count_global_words(args)
        if args[at:] and args[at] not in FURTHER:
            args = [*args[:at], BEGIN, *args[at:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [BEGIN, *sorted(SHOWN)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SHOWN:
            return add_global_options(begin) if cmd_name == BEGIN else None
        command = getattr(import_module("tpuherd.cli.sweep_show"), cmd_name)
        assert isinstance(command, click.Command)
        complete_arguments(command)
        return add_global_options(command)


@click.group(cls=SweepGroup)
def sweep() -> None:
    """Try many parameters, on many nodes.

    FILE is a job file with a `sweep:` in it. Trials run on the job's copies, one after another;
    one whose node is preempted goes on first, wherever a node is free.

    \b
    herd sweep lr.yaml
    herd sweep best lr
    """


@click.command(BEGIN, cls=JobCommand)
@click.argument("file", metavar="")
@add_job_options
@add_follow_options
@click.pass_context
def begin(context: click.Context, /, file: str, **said: Any) -> ParsedCommand:
    """Begin the sweep that a job file describes; options go before what it says."""
    from tpuherd.cli.submit_job import RunOptions
    from tpuherd.cli.sweep_do import run_sweep
    from tpuherd.model.slots_and_plan import Goal

    ways = {word: said.pop(word) for word in ("follow", "waits")}
    told = parse_run_options(file, context.meta.get(COMMAND, []), said)
    asked = RunOptions(goal=Goal.RUN, by="herd sweep", **ways, **told)
    return make_parsed_command("herd sweep", partial(run_sweep, asked), attentive=True)
