"""`herd ssh`: opens a terminal on a host that survives a lost connection."""

from functools import partial

import click

from tpuherd.cli.anywhere import TargetCommand
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.commands.command_types import ExecRequest

LOGIN = 'exec "${SHELL:-/bin/sh}" -l'


@click.command(cls=TargetCommand)
@click.argument("target")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-t", "--tty", is_flag=True, help="Run COMMAND with a terminal.")
@click.option("-y", "--yes", is_flag=True, help="Include nodes of other herd users without asking.")
def ssh(target: str, command: tuple[str, ...], tty: bool, yes: bool) -> ParsedCommand:
    """Open a terminal on a host of TARGET, the first one if there are several.

    The shell runs under the host's agent: after a lost connection it continues where it was, and
    when you leave by Enter ~ . or close the window, you can attach to it again (`herd exec
    --list`). COMMAND runs instead of the shell, without a terminal unless you give -t; a single
    word is a line for the shell.
    """
    line = command[0] if len(command) == 1 else None
    request = ExecRequest(target=target, argv=command, shell=line if command else LOGIN, yes=yes)
    if command and not tty:
        from tpuherd.cli.exec import run_exec as run_plain

        return make_parsed_command(
            "herd ssh", partial(run_plain, request, first=True), attentive=True
        )
    from tpuherd.cli.terminal import run_terminal

    return make_parsed_command(
        "herd ssh", partial(run_terminal, request, first=True), attentive=True
    )
