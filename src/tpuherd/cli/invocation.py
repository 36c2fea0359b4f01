"""What the user said before the command: which world is meant, and how much to say."""

import sys
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, kw_only=True, slots=True)
class Invocation:
    """Every command finds this in `ctx.obj`."""

    world: Path | None = None  #: the state directory of a simulated world; None is Google Cloud
    loud: int = 0  #: -1 with --quiet, 1 with -v, 2 with -vv


def invocation() -> Invocation:
    """The one of the command that runs."""
    said = click.get_current_context().find_object(Invocation)
    return said or Invocation()


def named_world() -> Path | None:
    """The world of --world or HERD_WORLD. Says on a terminal that it is a simulated one."""
    said = invocation()
    if said.world is not None and said.loud >= 0 and sys.stderr.isatty():
        click.echo(f"world: {said.world} (simulated)", err=True)
    return said.world
