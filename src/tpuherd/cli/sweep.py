"""`herd sweep`: try many parameters on many nodes, and look at what came of it."""

from functools import partial
from importlib import import_module
from typing import Any

import click

from tpuherd.cli.anywhere import accept_anywhere, skip_options
from tpuherd.cli.completion import complete_arguments
from tpuherd.cli.job_options import COMMAND, Spoken
from tpuherd.cli.parsed_command import Errand, errand
from tpuherd.cli.run import following, options, wishing
from tpuherd.cli.via_layout import SHOWN

BEGIN = "FILE"
FURTHER = SHOWN.union((BEGIN, "-h", "--help"))


class Sweeps(click.Group):
    """A file, or one of a few words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = skip_options(args)
        if args[at:] and args[at] not in FURTHER:
            args = [*args[:at], BEGIN, *args[at:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [BEGIN, *sorted(SHOWN)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SHOWN:
            return accept_anywhere(begin) if cmd_name == BEGIN else None
        command = getattr(import_module("tpuherd.cli.sweep_show"), cmd_name)
        assert isinstance(command, click.Command)
        complete_arguments(command)
        return accept_anywhere(command)


@click.group(cls=Sweeps)
def sweep() -> None:
    """Try many parameters, on many nodes.

    FILE is a job file with a `sweep:` in it. Trials run on the job's copies, one after another;
    one whose node is preempted goes on first, wherever a node is free.

    \b
    herd sweep lr.yaml
    herd sweep best lr
    """


@click.command(BEGIN, cls=Spoken)
@click.argument("file", metavar="")
@wishing
@following
@click.pass_context
def begin(context: click.Context, /, file: str, **said: Any) -> Errand:
    """Begin the sweep that a job file describes; options go before what it says."""
    from tpuherd.cli.submit_job import Asked
    from tpuherd.cli.sweep_do import wish
    from tpuherd.model.slots_and_plan import Goal

    ways = {word: said.pop(word) for word in ("follow", "waits")}
    told = options(file, context.meta.get(COMMAND, []), said)
    asked = Asked(goal=Goal.RUN, by="herd sweep", **ways, **told)
    return errand("herd sweep", partial(wish, asked), attentive=True)
