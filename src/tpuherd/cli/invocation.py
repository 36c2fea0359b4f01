"""What the user said before the command: which world is meant, and how much to say."""

import sys
from pathlib import Path

import click

from tpuherd.commands.invocation import Invocation


def current_invocation() -> Invocation:
    """The one of the command that runs."""
    said = click.get_current_context().find_object(Invocation)
    return said or Invocation()


def named_world() -> Path | None:
    """The world of --world or HERD_WORLD. Says on a terminal that it is a simulated one."""
    said = current_invocation()
    if said.world is not None and said.loud >= 0 and sys.stderr.isatty():
        click.echo(f"world: {said.world} (simulated)", err=True)
    return said.world
