"""`herd ssh`: a terminal on a host, which a cut connection or a closed lid does not end."""

from functools import partial

import click

from tpuherd.cli.anywhere import RemoteLine
from tpuherd.cli.parsed_command import Errand, errand
from tpuherd.commands.command_types import Wish

LOGIN = 'exec "${SHELL:-/bin/sh}" -l'


@click.command(cls=RemoteLine)
@click.argument("target")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-t", "--tty", is_flag=True, help="A terminal for COMMAND, too.")
@click.option("-y", "--yes", is_flag=True, help="Also on a node of another herd user.")
def ssh(target: str, command: tuple[str, ...], tty: bool, yes: bool) -> Errand:
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
    wish = Wish(target=target, argv=command, shell=line if command else LOGIN, yes=yes)
    if command and not tty:
        from tpuherd.cli.exec_run import run as run_plain

        return errand("herd ssh", partial(run_plain, wish, first=True), attentive=True)
    from tpuherd.cli.terminal import run

    return errand("herd ssh", partial(run, wish, first=True), attentive=True)
