"""The `herd` command: finds the module of each command; users never see a traceback."""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tpuherd._version import __version__
from tpuherd.cli.anywhere import add_global_options, change_invocation, count_global_words
from tpuherd.cli.command_table import (
    HIDDEN,
    SECTIONS,
    all_commands_page,
    expand_alias,
    help_page,
)
from tpuherd.cli.completion import complete_arguments
from tpuherd.cli.examples import add_examples
from tpuherd.cli.print_text import print_text
from tpuherd.commands.invocation import Invocation
from tpuherd.commands.terminal_facts import choose_colour
from tpuherd.near_names import near_names
from tpuherd.withdrawn import option_sentence, replacement_sentence

INTERRUPTED = 130
MISUSED = 2
OTHER_NAMES = frozenset(("context", "sim"))  #: their NAMEs are not of jobs
BROKEN_PIPE = 141

PLACES = {name: place for commands in SECTIONS.values() for name, (_, place) in commands.items()}


class LazyGroup(click.Group):
    """Loads a command when it is called, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = PLACES.get(cmd_name) or HIDDEN.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        if cmd_name not in OTHER_NAMES:
            complete_arguments(command)
        return add_examples(add_global_options(command), cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        known = [(name, one) for each in SECTIONS.values() for name, (one, _) in each.items()]
        return [
            CompletionItem(name, help=one) for name, one in known if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in PLACES.keys() | HIDDEN.keys() and not args[0].startswith("-"):
            raise click.UsageError(unknown_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return help_page().rstrip()


def unknown_command(word: str) -> str:
    near = near_names(word, PLACES, most=1)
    advice = f"did you mean {near[0]}?" if near else "`herd --all` lists all commands."
    return f"unknown command {word}; {advice}"


def show_all_commands(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(all_commands_page(), nl=False)
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--world", type=click.Path(file_okay=False, path_type=Path), default=None)
@click.option("-q", "--quiet", is_flag=True)
@click.option("-v", "--verbose", count=True)
@click.option("--all", is_flag=True, is_eager=True, expose_value=False, callback=show_all_commands)
@click.version_option(__version__, message="herd %(version)s")
@click.pass_context
def herd(ctx: click.Context, world: Path | None, quiet: bool, verbose: int) -> None:
    """Run jobs and commands on Cloud TPU pods, real or simulated."""
    change_invocation(ctx, world=world, loud=-1 if quiet else verbose)


def run_locally(command: Any) -> int:
    """Run a parsed command in this process."""
    from tpuherd.cli.run_in_process import run_in_process

    environ = command.said.environ
    return run_in_process(command, environ, choose_colour(environ))


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str] | None = None,
    do: Callable[[Any], int] = run_locally,
) -> int:
    """Run one command line and return its exit status.

    What works on jobs or hosts is returned by click as a ParsedCommand, which `do` runs. Without
    `environ`, it is this process's.
    """
    if environ is None:
        from tpuherd.settings.project_access import process_environment

        environ = process_environment()
    arguments = expand_alias(arguments, count_global_words(arguments))
    try:
        result = herd.main(
            arguments,
            prog_name="herd",
            standalone_mode=False,
            color=choose_colour(environ),
            obj=Invocation(environ=environ),
            default_map={"world": environ.get("HERD_WORLD") or None},
        )
        sys.stdout.flush()
        if result is not None and not isinstance(result, int):
            return do(result)
        return result or 0
    except click.exceptions.NoArgsIsHelpError as asked:
        print(asked.format_message(), file=sys.stderr)
        return asked.exit_code
    except click.ClickException as refusal:
        print_refusal(refusal, arguments)
        return refusal.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; without this Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as surprise:  # the last net: no traceback reaches a user
        if environ.get("HERD_DEBUG"):
            raise
        if is_too_long(surprise):
            print_text("herd: a name in the command is too long to be that of a file", err=True)
            return MISUSED
        name = type(surprise).__name__
        print_text(f"herd: internal error: {name}: {surprise}", err=True)
        click.echo("Set HERD_DEBUG=1 for a traceback.", err=True)
        return 1


def is_too_long(error: Exception) -> bool:
    """Whether it says that no file can have this name."""
    return isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG


def print_refusal(refusal: click.ClickException, arguments: Sequence[str]) -> None:
    """Print one sentence on stderr: the command, what is wrong, what to do."""
    said_by, sentence = "herd", ""
    if isinstance(refusal, click.NoSuchOption):
        sentence = option_sentence(refusal.option_name)
    if isinstance(refusal, click.UsageError) and not sentence:
        sentence = replacement_sentence(arguments[count_global_words(arguments) :])
    if isinstance(refusal, click.UsageError) and refusal.ctx is not None:
        said_by = refusal.ctx.command_path
    sentence = sentence or refusal.format_message()
    print_text(f"{said_by}: {sentence[:1].lower()}{sentence[1:]}", err=True)
