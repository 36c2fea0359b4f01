"""`herd context`: which cloud is meant, who we are there, and what may be had."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.catalogue import accelerators, generations, zones
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.print_text import print_text
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.jobfile.grants import Grant, grant_document, parse_mail_grants
from tpuherd.settings import contexts_file, host_routes, project_access, project_settings
from tpuherd.settings.folders import resolve_folders
from tpuherd.views.format_text import format_table

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")

WORDS = ("project", "world", "account", "login", "ways", "keys", "via")
BYTES_MAX = 1_000_000


@click.group()
def context() -> None:
    """Say once which cloud is meant, and what you may have there."""


@context.command("list")
@as_json
def list_(json_: bool) -> ParsedCommand:
    """Show all contexts; the current one is marked."""
    return make_parsed_command("herd context list", partial(run_context_list, json_))


@context.command()
@click.argument("name")
def use(name: str) -> ParsedCommand:
    """From now on NAME is meant."""
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
    return make_parsed_command("herd context add", partial(run_context_add, name, said))


@context.command()
@click.argument("name", required=False)
@as_json
def show(name: str | None, json_: bool) -> ParsedCommand:
    """Show a context, the current one unless said, with what may be had."""
    return make_parsed_command("herd context show", partial(run_context_show, name, json_))


@context.command()
@click.argument("name")
def remove(name: str) -> ParsedCommand:
    """Forget a context; what runs there is left alone."""
    return make_parsed_command("herd context remove", partial(run_context_remove, name))


@context.command()
@click.argument("name", required=False)
def install(name: str | None) -> int:
    """Put herd on the machine where a context's engine is to run (`via`)."""
    from tpuherd.cli import via_client

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
    one = [said[word] is not None for word in ("zone", "type_", "tier")]
    if any(one) != all(one) or not (any(one) or said["mail"] or said["clear"]):
        raise click.UsageError("say --zone, --type and --tier, or --mail FILE")
    return make_parsed_command("herd context grant", partial(run_context_grant, said))


async def run_context_list(json_: bool, console: "Console", home: "HostAccess") -> int:
    """All of them."""
    from tpuherd.cli.job_session import print_json, print_lines

    content = contexts_file.load_contexts(config_folder(console))
    if json_:
        await print_json(
            console, {"current": content.get("current"), "contexts": content["contexts"]}
        )
        return 0
    rows = [("", "NAME", "CLOUD", "LOGIN")]
    for name, one in sorted(content["contexts"].items()):
        mark = "*" if name == content.get("current") else ""
        rows.append((mark, name, cloud_text(one), one.get("login", "")))
    if len(rows) == 1:
        await console.print_notice("there is no context: Google's usual project is meant")
    else:
        await print_lines(console, format_table(rows))
    return 0


def cloud_text(one: dict[str, Any]) -> str:
    """What a context means."""
    return f"world {one['world']}" if one.get("world") else f"project {one.get('project', '?')}"


async def run_context_use(name: str, console: "Console", home: "HostAccess") -> int:
    """It is the current one now."""
    from tpuherd.cli.job_session import print_lines

    with contexts_file.edit_contexts(config_folder(console)) as content:
        one = contexts_file.find_context(content, name)
        content["current"] = name
    await print_lines(console, f"{name} is meant from now on: {cloud_text(one)}")
    return 0


async def run_context_add(
    name: str, said: dict[str, Any], console: "Console", home: "HostAccess"
) -> int:
    """A new one, or new words for one."""
    from tpuherd.cli.job_session import print_lines

    if said["world"] and said["project"]:
        raise InvalidInput("a context is a project or a world, not both")
    for word in said["ways"]:
        host_routes.parse_route(word)
    told = {word: list(it) if word == "ways" else it for word in WORDS if (it := said[word])}
    if said["world"]:
        told["world"] = str((console.folder / said["world"]).absolute())
    if said["account"]:
        told["account"] = existing_path(console, said["account"])
    with contexts_file.edit_contexts(config_folder(console)) as content:
        before = content["contexts"].get(name, {})
        if not {**before, **told}.keys() & {"project", "world"}:
            raise InvalidInput("say what it means", hint="--project ID or --world DIRECTORY")
        other = "project" if "world" in told else "world" if "project" in told else ""
        before.pop(other, None)
        content["contexts"][name] = {**before, **told}
        content.setdefault("current", name)
        first = content["current"] == name
    await print_lines(
        console, f"{name}: {cloud_text({**before, **told})}{', current' if first else ''}"
    )
    return 0


def existing_path(console: "Console", file: str) -> str:
    """The path of a file that is there."""
    path = console.folder / Path(file).expanduser()
    if not path.is_file():
        raise InvalidInput(f"{file} is not there")
    return str(path)


async def run_context_show(
    name: str | None, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    """One, and what its project may have."""
    from tpuherd.cli.job_session import print_json, print_lines

    content = contexts_file.load_contexts(config_folder(console))
    chosen = name or content.get("current")
    one = contexts_file.find_context(content, chosen) if chosen else {}
    world = Path(one["world"]) if one.get("world") else None
    project = one.get("project") or ("" if world else current_project(console))
    allowed = project_settings.load_allowance(config_folder(console), world=world, project=project)
    if json_:
        grants = [grant_document(grant) for grant in allowed.grants]
        known = {"everything": allowed.everything, "grants": grants}
        await print_json(console, {"name": chosen, **one, "project": project, **known})
        return 0
    rows = [("context", chosen or "none"), ("cloud", cloud_text({"project": project, **one}))]
    rows += [(word, str(one[word])) for word in WORDS[2:] if one.get(word)]
    await print_lines(console, format_table(rows))
    if allowed.everything:
        await print_lines(console, "\nall zones may be used")
    elif allowed.grants:
        await print_lines(console, "\n" + grants_table(allowed.grants))
    else:
        await print_lines(
            console, "\nno grants: you are asked before the first node that is billed"
        )
    return 0


def grants_table(grants: tuple[Grant, ...]) -> str:
    """What may be had."""
    rows = [("ZONE", "TYPE", "TIER", "CHIPS", "")]
    for one in sorted(grants, key=lambda each: (each.zone, each.type, each.tier)):
        many = "any" if one.chips is None else str(one.chips)
        rows.append((one.zone, one.type, one.tier, many, "free" if one.free else ""))
    return format_table(rows)


async def run_context_remove(name: str, console: "Console", home: "HostAccess") -> int:
    """It is forgotten."""
    from tpuherd.cli.job_session import print_lines

    with contexts_file.edit_contexts(config_folder(console)) as content:
        contexts_file.find_context(content, name)
        del content["contexts"][name]
        if content.get("current") == name:
            del content["current"]
    await print_lines(console, f"{name} is forgotten")
    return 0


async def run_context_grant(said: dict[str, Any], console: "Console", home: "HostAccess") -> int:
    """Grants by hand, or out of a mail."""
    from tpuherd.cli.job_session import print_json, print_lines

    project = said["project"] or current_project(console)
    found = parse_mail_grants(await read_mail(said["mail"], console)) if said["mail"] else []
    if said["mail"] and not found:
        hint = "a line says: 32 spot Cloud TPU v4 chips in zone us-central2-b"
        raise InvalidInput("no grant was found in the mail", hint=hint)
    if said["zone"]:
        words = {word: said[word] for word in ("zone", "tier", "chips", "free")}
        found.append(Grant(type=normalize_type(said["type_"]), **words))
    for one in found:
        check_grant(one)
    if said["clear"]:
        project_settings.clear_grants(config_folder(console), project)
    project_settings.add_grants(config_folder(console), project, found)
    allowed = project_settings.load_allowance(config_folder(console), world=None, project=project)
    if said["json_"]:
        await print_json(console, [grant_document(one) for one in allowed.grants])
    elif allowed.grants:
        await print_lines(console, f"{project} may have\n{grants_table(allowed.grants)}")
    else:
        await print_lines(console, f"{project} has no grants")
    return 0


def normalize_type(word: str) -> str:
    """v4, v5litepod → v5e, v3-8"""
    plain = word.lower()
    return next((one.name for one in generations().values() if one.prefix == plain), plain)


def check_grant(one: Grant) -> None:
    """It names what there is. A zone that our table lacks may be new, if its region is not."""
    from tpuherd.jobfile.cross_checks import unknown_type_message, unknown_zone_message

    if one.type not in generations() and one.type not in accelerators():
        raise InvalidInput(unknown_type_message(one.type))
    regions = {zone.region for zone in zones().values()}
    if one.zone not in zones() and one.zone.rpartition("-")[0] not in regions:
        raise InvalidInput(unknown_zone_message(one.zone))


async def read_mail(file: str, console: "Console") -> str:
    """Its text."""
    if file == "-":
        if console.is_terminal(0):
            await console.print_notice("paste the mail, then Ctrl+D")
        return await read_stdin(console)
    return Path(existing_path(console, file)).read_text(errors="replace")


def config_folder(console: "Console") -> Path:
    """Where contexts are kept."""
    return resolve_folders(console.environ).config


def current_project(console: "Console") -> str:
    """Of Google, whether or not anybody may ask there."""
    current = project_access.current_context(config_folder(console))
    if current.get("world"):
        raise InvalidInput("a world grants everything", hint="--project ID names one of Google's")
    return project_access.resolve_project(
        console.environ, current, project_access.find_credentials(console.environ)
    )


async def read_stdin(console: "Console") -> str:
    """All of it."""
    text = b""
    while piece := await console.read():
        text += piece
        if len(text) > BYTES_MAX:
            raise InvalidInput("that is more than a megabyte: something else is meant")
    return text.decode(errors="replace")
