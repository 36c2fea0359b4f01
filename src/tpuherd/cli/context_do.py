"""What `herd context` does: reads and writes the one file of contexts and grants."""

from pathlib import Path
from typing import Any

from tpuherd.catalogue import accelerators, generations, zones
from tpuherd.cli.asking import read_stdin
from tpuherd.cli.job_session import print_json, print_lines
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.cross_checks import unknown_type_message, unknown_zone_message
from tpuherd.jobfile.grants import Grant, grant_document, parse_mail_grants
from tpuherd.settings import contexts_file, host_routes, project_access, project_settings
from tpuherd.settings.folders import resolve_folders
from tpuherd.views.format_text import format_table

WORDS = ("project", "world", "account", "login", "ways", "keys", "via")


async def run_context_list(json_: bool, console: Console, home: HostAccess) -> int:
    """All of them."""
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


async def run_context_use(name: str, console: Console, home: HostAccess) -> int:
    """It is the current one now."""
    with contexts_file.edit_contexts(config_folder(console)) as content:
        one = contexts_file.find_context(content, name)
        content["current"] = name
    await print_lines(console, f"{name} is meant from now on: {cloud_text(one)}")
    return 0


async def run_context_add(
    name: str, said: dict[str, Any], console: Console, home: HostAccess
) -> int:
    """A new one, or new words for one."""
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


def existing_path(console: Console, file: str) -> str:
    """The path of a file that is there."""
    path = console.folder / Path(file).expanduser()
    if not path.is_file():
        raise InvalidInput(f"{file} is not there")
    return str(path)


async def run_context_show(
    name: str | None, json_: bool, console: Console, home: HostAccess
) -> int:
    """One, and what its project may have."""
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


async def run_context_remove(name: str, console: Console, home: HostAccess) -> int:
    """It is forgotten."""
    with contexts_file.edit_contexts(config_folder(console)) as content:
        contexts_file.find_context(content, name)
        del content["contexts"][name]
        if content.get("current") == name:
            del content["current"]
    await print_lines(console, f"{name} is forgotten")
    return 0


async def run_context_grant(said: dict[str, Any], console: Console, home: HostAccess) -> int:
    """Grants by hand, or out of a mail."""
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
    if one.type not in generations() and one.type not in accelerators():
        raise InvalidInput(unknown_type_message(one.type))
    regions = {zone.region for zone in zones().values()}
    if one.zone not in zones() and one.zone.rpartition("-")[0] not in regions:
        raise InvalidInput(unknown_zone_message(one.zone))


async def read_mail(file: str, console: Console) -> str:
    """Its text."""
    if file == "-":
        if console.is_terminal(0):
            await console.print_notice("paste the mail, then Ctrl+D")
        return await read_stdin(console)
    return Path(existing_path(console, file)).read_text(errors="replace")


def config_folder(console: Console) -> Path:
    """Where contexts are kept."""
    return resolve_folders(console.environ).config


def current_project(console: Console) -> str:
    """Of Google, whether or not anybody may ask there."""
    current = project_access.current_context(config_folder(console))
    if current.get("world"):
        raise InvalidInput("a world grants everything", hint="--project ID names one of Google's")
    return project_access.resolve_project(
        console.environ, current, project_access.find_credentials(console.environ)
    )
