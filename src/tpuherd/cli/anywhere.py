"""The options that may be anywhere before a remote command: -q, -v and --world."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tpuherd.commands.invocation import Invocation

WORLD = click.Path(file_okay=False, path_type=Path)
LEADING = re.compile(r"-[qv]+|--quiet|--verbose|--world(=.*)?")
UNSEEN: Any = {"expose_value": False, "hidden": True}  #: `herd --help` shows them


def set_world(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        change_invocation(ctx, world=value)


def set_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        change_invocation(ctx, loud=-1)


def set_verbose(ctx: click.Context, param: click.Parameter, value: int) -> None:
    if value:
        said = ctx.find_object(Invocation) or Invocation()
        change_invocation(ctx, loud=max(0, said.loud) + value)


def change_invocation(ctx: click.Context, **changes: Any) -> None:
    ctx.obj = replace(ctx.find_object(Invocation) or Invocation(), **changes)


def add_global_options(command: click.Command) -> click.Command:
    """Add these options to the command and its subcommands, unless it has its own."""
    taken = {name for param in command.params for name in param.opts}
    for option in (
        click.Option(["--world"], type=WORLD, callback=set_world, **UNSEEN),
        click.Option(["-q", "--quiet"], is_flag=True, callback=set_quiet, **UNSEEN),
        click.Option(["-v", "--verbose"], count=True, callback=set_verbose, **UNSEEN),
    ):
        if not taken & set(option.opts):
            command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_global_options(below)
    return command


def count_global_words(words: Sequence[str]) -> int:
    """Count the leading words that are these options and their values."""
    at = 0
    while at < len(words) and LEADING.fullmatch(words[at]):
        at += 2 if words[at] == "--world" else 1
    return at


class TargetCommand(click.Command):
    """A command line that ends in another command: TARGET COMMAND.

    All words from COMMAND on, with or without a -- before it, belong to COMMAND.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self.find_command(args)
        return super().parse_args(ctx, args if at is None else [*args[:at], "--", *args[at:]])

    def find_command(self, args: list[str]) -> int | None:
        """Return the index of the second word that is not an option; None if a -- comes first."""
        words, at = 0, 0
        while at < len(args) and args[at] != "--":
            word = args[at]
            if word.startswith("-") and word != "-":
                at += 2 if self.needs_next_word(word) else 1
                continue
            words += 1
            if words == 2:
                return at
            at += 1
        return None

    def needs_next_word(self, word: str) -> bool:
        """Whether the value of this option is the next word."""
        valued = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and not param.count
            for name in param.opts
        }
        if word.startswith("--"):
            return word in valued
        for place, letter in enumerate(word[1:], 1):
            if f"-{letter}" in valued:
                return place == len(word) - 1
        return False


def current_invocation() -> Invocation:
    said = click.get_current_context().find_object(Invocation)
    return said or Invocation()


def named_world() -> Path | None:
    """Return the world of --world or HERD_WORLD; on a terminal, print that it is simulated."""
    said = current_invocation()
    if said.world is not None and said.loud >= 0 and sys.stderr.isatty():
        click.echo(f"world: {said.world} (simulated)", err=True)
    return said.world
