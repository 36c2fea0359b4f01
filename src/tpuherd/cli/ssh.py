"""`herd ssh`: a terminal on a host, which a cut connection or a closed lid does not end."""

from functools import partial

import click

from tpuherd.cli.errand import Errand, errand
from tpuherd.cli.work import Wish

LOGIN = 'exec "${SHELL:-/bin/sh}" -l'


@click.command()
@click.argument("target")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(target: str, command: tuple[str, ...]) -> Errand:
    """Open a terminal on a host of TARGET.

    It runs under the host's agent: after a cut it goes on where it was, and when you leave by
    Enter ~ . or your window closes, it can be attached to again (`herd exec --list`). Of several
    hosts it is the first. With a COMMAND, that runs instead of the login's shell; a single word
    of it is a line for the shell.

    \b
    herd ssh gpt/w3        herd ssh gpt/w3 'cd out && less log'
    """
    from tpuherd.cli.session import run

    line = command[0] if len(command) == 1 else None
    wish = Wish(target=target, argv=command, shell=line if command else LOGIN)
    return errand("herd ssh", partial(run, wish, first=True), attentive=True)
