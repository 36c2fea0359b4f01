"""`herd completion`: completes commands, options, files and job names with Tab."""

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from tpuherd.commands.invocation import Invocation

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HERD_COMPLETE"  #: by which a shell asks for completions
NAMES = frozenset(("name", "names", "target"))  #: arguments that name jobs or hosts
FILES = frozenset(("file",))


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and job names with Tab.

    \b
    In ~/.bashrc:                    eval "$(herd completion bash)"
    In ~/.zshrc:                     eval "$(herd completion zsh)"
    In ~/.config/fish/config.fish:   herd completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "herd", VARIABLE).source())


def complete_arguments(command: click.Command) -> None:
    """Let the arguments of a command, and of those below it, complete names and files."""
    for param in command.params:
        if isinstance(param, click.Argument) and param.name in NAMES:
            param._custom_shell_complete = complete_names
        elif isinstance(param, click.Argument) and param.name in FILES:
            param._custom_shell_complete = complete_files
    if isinstance(command, click.Group):
        for below in command.commands.values():
            complete_arguments(below)


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    return [CompletionItem(incomplete, type="file")]


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete jobs, slots after a job's -, and known nodes."""
    try:
        return [CompletionItem(name) for name in known_names(ctx, incomplete)]
    except Exception:  # noqa: BLE001 - Tab shows nothing rather than an error
        return []


def known_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the names known without asking the cloud."""
    from tpuherd.clock import WallClock
    from tpuherd.cloud.node_cache import NodeCache
    from tpuherd.settings import project_access
    from tpuherd.store.open_database import open_database
    from tpuherd.targets import split_bid_name

    said = ctx.find_object(Invocation) or Invocation()
    world = said.world or ctx.find_root().params.get("world")
    scope = project_access.resolve_scope(said.environ, world=Path(world) if world else None)
    names: set[str] = set()
    if scope.has_store:
        store = open_database(scope, WallClock().now())
        try:
            for stored_job in store.stored_jobs().values():
                names |= {stored_job.job}
                names |= set(
                    stored_job.slot_names if incomplete.startswith(f"{stored_job.job}-") else ()
                )
        finally:
            store.close()
    survey = NodeCache(scope.folders.state / "nodes" / scope.logs_folder.name).load_nodes()
    names |= (
        {node.name for node in survey.nodes if split_bid_name(node.name) is None}
        if survey
        else set()
    )
    return sorted(name for name in names if name.startswith(incomplete))
