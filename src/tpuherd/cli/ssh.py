"""`herd ssh`: a terminal on a host, which a cut connection or a closed lid does not end."""

from functools import partial

import click

from tpuherd.cli.anywhere import TargetCommand
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.commands.command_types import ExecRequest

LOGIN = 'exec "${SHELL:-/bin/sh}" -l'


@click.command(cls=TargetCommand)
@click.argument("target")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-t", "--tty", is_flag=True, help="A terminal for COMMAND, too.")
@click.option("-y", "--yes", is_flag=True, help="Also on a node of another herd user.")
def ssh(target: str, command: tuple[str, ...], tty: bool, yes: bool) -> ParsedCommand:
    """Open a terminal on a host of TARGET.

    It runs under the host's agent: after a cut it goes on where it was, and when you leave by
    Enter ~ . or your window closes, it can be attached to again (`herd exec --list`). Of several
    hosts it is the first. With a COMMAND, that runs instead of the login's shell, and without a
    terminal unless -t asks for one; a single word of it is a line for the shell.

    \b
    herd ssh gpt/w3        herd ssh gpt/w3 'cat out/log' > log
                           herd ssh -t gpt/w3 'less out/log'
    """
    line = command[0] if len(command) == 1 else None
    wish = ExecRequest(target=target, argv=command, shell=line if command else LOGIN, yes=yes)
    if command and not tty:
        from tpuherd.cli.exec import run_exec as run_plain

        return make_parsed_command("herd ssh", partial(run_plain, wish, first=True), attentive=True)
    from tpuherd.cli.terminal import run_terminal

    return make_parsed_command("herd ssh", partial(run_terminal, wish, first=True), attentive=True)
