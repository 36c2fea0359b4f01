"""`herd context`: which cloud is meant, who we are there, and what may be had."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.print_text import print_text

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


@click.group()
def context() -> None:
    """Say once which cloud is meant, and what you may have there."""


@context.command("list")
@as_json
def list_(json_: bool) -> ParsedCommand:
    """Show all contexts; the current one is marked."""
    from tpuherd.cli.context_do import run_context_list

    return make_parsed_command("herd context list", partial(run_context_list, json_))


@context.command()
@click.argument("name")
def use(name: str) -> ParsedCommand:
    """From now on NAME is meant."""
    from tpuherd.cli.context_do import run_context_use

    return make_parsed_command("herd context use", partial(run_context_use, name))


@context.command()
@click.argument("name")
@click.option("--project", metavar="ID", help="A project of Google Cloud.")
@click.option(
    "--world",
    "world",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of a simulated world instead.",
)
@click.option("--account", metavar="FILE", help="Credentials, if not the usual ones.")
@click.option("--login", metavar="NAME", help="The user on hosts.")
@click.option("--way", "ways", multiple=True, metavar="WAY", help="How hosts are reached; several.")
@click.option(
    "--keys",
    type=click.Choice(["node", "project"]),
    help="Whose metadata gets your SSH key: each node's, unless said, or the project's.",
)
@click.option("--via", metavar="USER@HOST", help="The machine where the engine is to run.")
def add(name: str, **said: Any) -> ParsedCommand:
    """Remember a context, or change one.

    \b
    herd context add lab --project my-project
    herd context add rehearsal --world ./world
    """
    from tpuherd.cli.context_do import run_context_add

    return make_parsed_command("herd context add", partial(run_context_add, name, said))


@context.command()
@click.argument("name", required=False)
@as_json
def show(name: str | None, json_: bool) -> ParsedCommand:
    """Show a context, the current one unless said, with what may be had."""
    from tpuherd.cli.context_do import run_context_show

    return make_parsed_command("herd context show", partial(run_context_show, name, json_))


@context.command()
@click.argument("name")
def remove(name: str) -> ParsedCommand:
    """Forget a context; what runs there is left alone."""
    from tpuherd.cli.context_do import run_context_remove

    return make_parsed_command("herd context remove", partial(run_context_remove, name))


@context.command()
@click.argument("name", required=False)
def install(name: str | None) -> int:
    """Put herd on the machine where a context's engine is to run (`via`)."""
    import os

    from tpuherd.cli import via_client
    from tpuherd.errors import HerdError, InvalidInput
    from tpuherd.settings import contexts_file
    from tpuherd.settings.folders import resolve_folders

    try:
        if name not in (
            None,
            contexts_file.load_contexts(resolve_folders(os.environ).config).get("current"),
        ):
            raise InvalidInput(
                f"{name} is not the current context", hint=f"herd context use {name}"
            )
        far = via_client.find_remote_machine(os.environ)
        if far is None:
            raise InvalidInput("this context names no machine",
                        hint="herd context add NAME --via USER@HOST")  # fmt: skip
        via_client.install_herd(far)
        via_client.prepare_machine(far)
        print_text(f"herd is on {far.via}, for {far.context}")
    except HerdError as error:
        return via_client.print_error("herd context install", error)
    return 0


@context.command()
@click.option("--mail", metavar="FILE", help="The mail that grants them; - reads it from here.")
@click.option("--zone", help="Where.")
@click.option("--type", "type_", metavar="TYPE", help="A generation (v4), or one size (v3-8).")
@click.option(
    "--tier", type=click.Choice(["spot", "preemptible", "on-demand", "reserved"]), help="How."
)
@click.option("--chips", type=click.IntRange(1), metavar="N", help="So many in all; else any.")
@click.option("--free", is_flag=True, help="They cost nothing.")
@click.option("--clear", is_flag=True, help="Forget all grants of the project first.")
@click.option("--project", metavar="ID", help="Of this project instead of the current one.")
@as_json
def grant(**said: Any) -> ParsedCommand:
    """Say what you may have: `zones: any` means these, and nothing else is asked for.

    \b
    herd context grant --mail -       paste the mail of Google's, then Ctrl+D
    herd context grant --zone us-central2-b --type v4 --tier spot --chips 32
    """
    from tpuherd.cli.context_do import run_context_grant

    one = [said[word] is not None for word in ("zone", "type_", "tier")]
    if any(one) != all(one) or not (any(one) or said["mail"] or said["clear"]):
        raise click.UsageError("say --zone, --type and --tier, or --mail FILE")
    return make_parsed_command("herd context grant", partial(run_context_grant, said))
