"""`herd context`: which cloud to use, as whom, and what you may use there."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.catalogue import accelerators, generations, zones
from tpuherd.cli.anywhere import current_invocation
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.print_text import print_text
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.jobfile.grants import Grant, grant_document, parse_mail_grants
from tpuherd.jobfile.value_types import show_value
from tpuherd.settings import contexts_file, host_routes, project_access, project_settings
from tpuherd.settings.folders import resolve_folders
from tpuherd.settings.store_address import refuse_password
from tpuherd.views.format_text import format_table

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")

WORDS = ("project", "world", "account", "login", "ways", "keys", "via", "store", "user")
BYTES_MAX = 1_000_000
TEXT_MAX = 1000  #: characters of a name or option


@click.group()
def context() -> None:
    """Choose the cloud to use, and what you may use there."""


@context.command("list")
@as_json
def list_(json_: bool) -> ParsedCommand:
    """List all contexts; the current one is marked."""
    return make_parsed_command("herd context list", partial(run_context_list, json_))


@context.command()
@click.argument("name")
def use(name: str) -> ParsedCommand:
    """Make NAME the current context."""
    return make_parsed_command("herd context use", partial(run_context_use, name))


@context.command()
@click.argument("name")
@click.option("--project", metavar="ID", help="A Google Cloud project.")
@click.option(
    "--world",
    "world",
    type=click.Path(file_okay=False, path_type=Path),
    help="A simulated world instead: its folder.",
)
@click.option("--account", metavar="FILE", help="A file of credentials; default: those of gcloud.")
@click.option("--login", metavar="NAME", help="Your login name on hosts.")
@click.option(
    "--way", "ways", multiple=True, metavar="WAY", help="How to reach hosts; may be repeated."
)
@click.option(
    "--keys",
    type=click.Choice(["node", "project"]),
    help="Where your SSH key is added: to each node (default) or to the project.",
)
@click.option("--via", metavar="USER@HOST", help="The machine on which the engine runs.")
@click.option("--store", metavar="URL", help="A PostgreSQL database that keeps the jobs.")
@click.option(
    "--user", metavar="NAME", help="Whose your jobs are, for others; default: user@machine."
)
def add(name: str, **said: Any) -> ParsedCommand:
    """Add a context, or change one."""
    return make_parsed_command("herd context add", partial(run_context_add, name, said))


@context.command()
@click.argument("name", required=False)
@as_json
def show(name: str | None, json_: bool) -> ParsedCommand:
    """Show a context with its grants; default: the current one."""
    return make_parsed_command("herd context show", partial(run_context_show, name, json_))


@context.command()
@click.argument("name")
def remove(name: str) -> ParsedCommand:
    """Remove a context; its jobs and nodes are left alone."""
    return make_parsed_command("herd context remove", partial(run_context_remove, name))


@context.command()
@click.argument("name", required=False)
def install(name: str | None) -> int:
    """Install herd where a context's engine runs (--via)."""
    from tpuherd.cli import via_client

    try:
        environ = current_invocation().environ
        content = contexts_file.load_contexts(resolve_folders(environ).config)
        if name not in (None, contexts_file.current_name(content, environ)):
            raise InvalidInput(
                f"{name} is not the current context", hint=f"herd context use {name}"
            )
        far = via_client.find_remote_machine(environ)
        if far is None:
            raise InvalidInput("the current context has no `via` machine",
                        hint="herd context add NAME --via USER@HOST")  # fmt: skip
        via_client.install_herd(far)
        via_client.prepare_machine(far)
        print_text(f"Installed herd on {far.via} for {far.context}")
    except HerdError as error:
        return via_client.print_error("herd context install", error)
    return 0


@context.command()
@click.option("--mail", metavar="FILE", help="Read the grants from Google's mail; - reads stdin.")
@click.option("--zone", help="The zone.")
@click.option("--type", "type_", metavar="TYPE", help="A generation (v4), or one size (v3-8).")
@click.option(
    "--tier", type=click.Choice(["spot", "preemptible", "on-demand", "reserved"]), help="The tier."
)
@click.option(
    "--chips",
    type=click.IntRange(1),
    metavar="N",
    help="At most this many chips in all; default: any number.",
)
@click.option("--free", is_flag=True, help="The chips are free of charge.")
@click.option("--clear", is_flag=True, help="Remove all grants of the project first.")
@click.option("--project", metavar="ID", help="A project other than the current one.")
@as_json
def grant(**said: Any) -> ParsedCommand:
    """Add a grant: a zone, type and tier that you may use.

    `zones: any` uses nothing else. A simulated world grants everything; there, a grant says only
    how many chips users share. Google's mail about your quota can be read as it is, with --mail.
    """
    one = [said[word] is not None for word in ("zone", "type_", "tier")]
    if any(one) != all(one) or not (any(one) or said["mail"] or said["clear"]):
        raise click.UsageError("give --zone, --type and --tier, or --mail FILE")
    return make_parsed_command("herd context grant", partial(run_context_grant, said))


async def run_context_list(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json, print_lines

    content = contexts_file.load_contexts(config_folder(console))
    if json_:
        await print_json(
            console, {"current": content.get("current"), "contexts": content["contexts"]}
        )
        return 0
    rows = [("", "NAME", "CLOUD", "LOGIN")]
    for name, one in sorted(content["contexts"].items()):
        mark = "*" if name == contexts_file.current_name(content, console.environ) else ""
        rows.append((mark, name, cloud_text(one), one.get("login", "")))
    if len(rows) == 1:
        await console.print_notice("No contexts. herd uses the default project of gcloud.")
    else:
        await print_lines(console, format_table(rows))
    return 0


def cloud_text(one: dict[str, Any]) -> str:
    """Return the project or world of a context."""
    return f"world {one['world']}" if one.get("world") else f"project {one.get('project', '?')}"


async def run_context_use(name: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines

    with contexts_file.edit_contexts(config_folder(console)) as content:
        one = contexts_file.find_context(content, name)
        content["current"] = name
    await print_lines(console, f"The current context is {name}: {cloud_text(one)}")
    return 0


async def run_context_add(
    name: str, said: dict[str, Any], console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import print_lines

    if said["world"] and said["project"]:
        raise InvalidInput("a context is a project or a world, not both")
    for text in (name, *map(str, said.values())):
        if not text.isprintable() or len(text) > TEXT_MAX:
            raise InvalidInput(f"{show_value(text)} can't be part of a context")
    for word in said["ways"]:
        host_routes.parse_route(word)
    told = {word: list(it) if word == "ways" else it for word in WORDS if (it := said[word])}
    if said["world"]:
        told["world"] = str((console.folder / said["world"]).absolute())
    if said["store"]:
        refuse_password(said["store"], origin="--store")
    if said["account"]:
        told["account"] = existing_path(console, said["account"])
    with contexts_file.edit_contexts(config_folder(console)) as content:
        before = content["contexts"].get(name, {})
        if not {**before, **told}.keys() & {"project", "world"}:
            raise InvalidInput(
                "a context needs a cloud", hint="give --project ID or --world DIRECTORY"
            )
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
    """Return the path of a file that must exist."""
    path = console.folder / Path(file).expanduser()
    if not path.is_file():
        raise InvalidInput(f"{file} does not exist")
    return str(path)


async def run_context_show(
    name: str | None, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import print_json, print_lines

    content = contexts_file.load_contexts(config_folder(console))
    chosen = name or contexts_file.current_name(content, console.environ)
    one = contexts_file.find_context(content, chosen) if chosen else {}
    world, project = current_place(console)
    if one:
        world, project = (Path(one["world"]), "") if one.get("world") else (None, one["project"])
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
        await print_lines(console, "\nAll zones may be used.")
    if allowed.grants:
        await print_lines(console, "\n" + grants_table(allowed.grants))
    elif not allowed.everything:
        await print_lines(
            console, "\nNo grants. herd asks before it requests the first node that is billed."
        )
    return 0


def grants_table(grants: tuple[Grant, ...]) -> str:
    rows = [("ZONE", "TYPE", "TIER", "CHIPS", "")]
    for one in sorted(grants, key=lambda each: (each.zone, each.type, each.tier)):
        many = "any" if one.chips is None else str(one.chips)
        rows.append((one.zone, one.type, one.tier, many, "free" if one.free else ""))
    return format_table(rows)


async def run_context_remove(name: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines

    with contexts_file.edit_contexts(config_folder(console)) as content:
        contexts_file.find_context(content, name)
        del content["contexts"][name]
        if content.get("current") == name:
            del content["current"]
    await print_lines(console, f"Removed {name}")
    return 0


async def run_context_grant(said: dict[str, Any], console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json, print_lines

    world, project = (None, said["project"]) if said["project"] else current_place(console)
    found = parse_mail_grants(await read_mail(said["mail"], console)) if said["mail"] else []
    if said["mail"] and not found:
        hint = "expected a line such as: 32 spot Cloud TPU v4 chips in zone us-central2-b"
        raise InvalidInput("the mail contains no grant", hint=hint)
    if said["zone"]:
        words = {word: said[word] for word in ("zone", "tier", "chips", "free")}
        found.append(Grant(type=normalize_type(said["type_"]), **words))
    for one in found:
        check_grant(one)
    config, title = config_folder(console), project or f"the world in {world}"
    if said["clear"]:
        project_settings.clear_grants(config, world=world, project=project)
    project_settings.add_grants(config, world=world, project=project, grants=found)
    allowed = project_settings.load_allowance(config, world=world, project=project)
    if said["json_"]:
        await print_json(console, [grant_document(one) for one in allowed.grants])
    elif allowed.grants:
        await print_lines(console, f"Grants of {title}:\n{grants_table(allowed.grants)}")
    else:
        await print_lines(console, f"{title} has no grants")
    return 0


def normalize_type(word: str) -> str:
    """v4, v5litepod → v5e, v3-8"""
    plain = word.lower()
    return next((one.name for one in generations().values() if one.prefix == plain), plain)


def check_grant(one: Grant) -> None:
    """Refuse unknown types and zones; a new zone of a known region is accepted."""
    from tpuherd.jobfile.cross_checks import unknown_type_message, unknown_zone_message

    if one.type not in generations() and one.type not in accelerators():
        raise InvalidInput(unknown_type_message(one.type))
    regions = {zone.region for zone in zones().values()}
    if one.zone not in zones() and one.zone.rpartition("-")[0] not in regions:
        raise InvalidInput(unknown_zone_message(one.zone))


async def read_mail(file: str, console: "Console") -> str:
    if file == "-":
        if console.is_terminal(0):
            await console.print_notice("Paste the mail, then press Ctrl+D.")
        return await read_stdin(console)
    return Path(existing_path(console, file)).read_text(errors="replace")


def config_folder(console: "Console") -> Path:
    return resolve_folders(console.environ).config


def current_place(console: "Console") -> tuple[Path | None, str]:
    """Return the chosen world, or else the Google project, without checking access to it."""
    current = project_access.current_context(config_folder(console), console.environ)
    world = project_access.find_world_folder(console.environ, current, console.said.world)
    if world is not None:
        return world, ""
    return None, project_access.resolve_project(
        console.environ, current, project_access.find_credentials(console.environ)
    )


async def read_stdin(console: "Console") -> str:
    text = b""
    while piece := await console.read():
        text += piece
        if len(text) > BYTES_MAX:
            raise InvalidInput("the input is larger than a megabyte")
    return text.decode(errors="replace")
