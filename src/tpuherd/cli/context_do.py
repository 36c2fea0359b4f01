"""What `herd context` does: reads and writes the one file of contexts and grants."""

from pathlib import Path
from typing import Any

from tpuherd.catalogue import accelerators, generations, zones
from tpuherd.cli.asking import piped
from tpuherd.cli.job_session import say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.errors import Unfit
from tpuherd.jobfile.cross_checks import no_type, no_zone
from tpuherd.jobfile.grants import Grant, as_written, of_mail
from tpuherd.settings import contexts_file, host_routes, project_access, project_settings
from tpuherd.settings.folders import resolve_folders
from tpuherd.views.format_text import lined

WORDS = ("project", "world", "account", "login", "ways", "keys", "via")


async def listed(json_: bool, console: Console, home: Home) -> int:
    """All of them."""
    content = contexts_file.load(folder(console))
    if json_:
        await say_json(
            console, {"current": content.get("current"), "contexts": content["contexts"]}
        )
        return 0
    rows = [("", "NAME", "CLOUD", "LOGIN")]
    for name, one in sorted(content["contexts"].items()):
        mark = "*" if name == content.get("current") else ""
        rows.append((mark, name, cloud(one), one.get("login", "")))
    if len(rows) == 1:
        await console.tell("there is no context: Google's usual project is meant")
    else:
        await say(console, lined(rows))
    return 0


def cloud(one: dict[str, Any]) -> str:
    """What a context means."""
    return f"world {one['world']}" if one.get("world") else f"project {one.get('project', '?')}"


async def used(name: str, console: Console, home: Home) -> int:
    """It is the current one now."""
    with contexts_file.changing(folder(console)) as content:
        one = contexts_file.known(content, name)
        content["current"] = name
    await say(console, f"{name} is meant from now on: {cloud(one)}")
    return 0


async def added(name: str, said: dict[str, Any], console: Console, home: Home) -> int:
    """A new one, or new words for one."""
    if said["world"] and said["project"]:
        raise Unfit("a context is a project or a world, not both")
    for word in said["ways"]:
        host_routes.parse(word)
    told = {word: list(it) if word == "ways" else it for word in WORDS if (it := said[word])}
    if said["world"]:
        told["world"] = str((console.folder / said["world"]).absolute())
    if said["account"]:
        told["account"] = existing(console, said["account"])
    with contexts_file.changing(folder(console)) as content:
        before = content["contexts"].get(name, {})
        if not {**before, **told}.keys() & {"project", "world"}:
            raise Unfit("say what it means", hint="--project ID or --world DIRECTORY")
        other = "project" if "world" in told else "world" if "project" in told else ""
        before.pop(other, None)
        content["contexts"][name] = {**before, **told}
        content.setdefault("current", name)
        first = content["current"] == name
    await say(console, f"{name}: {cloud({**before, **told})}{', current' if first else ''}")
    return 0


def existing(console: Console, file: str) -> str:
    """The path of a file that is there."""
    path = console.folder / Path(file).expanduser()
    if not path.is_file():
        raise Unfit(f"{file} is not there")
    return str(path)


async def shown(name: str | None, json_: bool, console: Console, home: Home) -> int:
    """One, and what its project may have."""
    content = contexts_file.load(folder(console))
    chosen = name or content.get("current")
    one = contexts_file.known(content, chosen) if chosen else {}
    world = Path(one["world"]) if one.get("world") else None
    project = one.get("project") or ("" if world else project_of(console))
    allowed = project_settings.allowed(folder(console), world=world, project=project)
    if json_:
        grants = [as_written(grant) for grant in allowed.grants]
        known = {"everything": allowed.everything, "grants": grants}
        await say_json(console, {"name": chosen, **one, "project": project, **known})
        return 0
    rows = [("context", chosen or "none"), ("cloud", cloud({"project": project, **one}))]
    rows += [(word, str(one[word])) for word in WORDS[2:] if one.get(word)]
    await say(console, lined(rows))
    if allowed.everything:
        await say(console, "\nall zones may be used")
    elif allowed.grants:
        await say(console, "\n" + granted_table(allowed.grants))
    else:
        await say(console, "\nno grants: you are asked before the first node that is billed")
    return 0


def granted_table(grants: tuple[Grant, ...]) -> str:
    """What may be had."""
    rows = [("ZONE", "TYPE", "TIER", "CHIPS", "")]
    for one in sorted(grants, key=lambda each: (each.zone, each.type, each.tier)):
        many = "any" if one.chips is None else str(one.chips)
        rows.append((one.zone, one.type, one.tier, many, "free" if one.free else ""))
    return lined(rows)


async def removed(name: str, console: Console, home: Home) -> int:
    """It is forgotten."""
    with contexts_file.changing(folder(console)) as content:
        contexts_file.known(content, name)
        del content["contexts"][name]
        if content.get("current") == name:
            del content["current"]
    await say(console, f"{name} is forgotten")
    return 0


async def granted(said: dict[str, Any], console: Console, home: Home) -> int:
    """Grants by hand, or out of a mail."""
    project = said["project"] or project_of(console)
    found = of_mail(await mail(said["mail"], console)) if said["mail"] else []
    if said["mail"] and not found:
        hint = "a line says: 32 spot Cloud TPU v4 chips in zone us-central2-b"
        raise Unfit("no grant was found in the mail", hint=hint)
    if said["zone"]:
        words = {word: said[word] for word in ("zone", "tier", "chips", "free")}
        found.append(Grant(type=type_of(said["type_"]), **words))
    for one in found:
        checked(one)
    if said["clear"]:
        project_settings.clear_grants(folder(console), project)
    project_settings.add_grants(folder(console), project, found)
    allowed = project_settings.allowed(folder(console), world=None, project=project)
    if said["json_"]:
        await say_json(console, [as_written(one) for one in allowed.grants])
    elif allowed.grants:
        await say(console, f"{project} may have\n{granted_table(allowed.grants)}")
    else:
        await say(console, f"{project} has no grants")
    return 0


def type_of(word: str) -> str:
    """v4, v5litepod → v5e, v3-8"""
    plain = word.lower()
    return next((one.name for one in generations().values() if one.prefix == plain), plain)


def checked(one: Grant) -> None:
    """It names what there is. A zone that our table lacks may be new, if its region is not."""
    if one.type not in generations() and one.type not in accelerators():
        raise Unfit(no_type(one.type))
    regions = {zone.region for zone in zones().values()}
    if one.zone not in zones() and one.zone.rpartition("-")[0] not in regions:
        raise Unfit(no_zone(one.zone))


async def mail(file: str, console: Console) -> str:
    """Its text."""
    if file == "-":
        if console.terminal(0):
            await console.tell("paste the mail, then Ctrl+D")
        return await piped(console)
    return Path(existing(console, file)).read_text(errors="replace")


def folder(console: Console) -> Path:
    """Where contexts are kept."""
    return resolve_folders(console.environ).config


def project_of(console: Console) -> str:
    """Of Google, whether or not anybody may ask there."""
    current = project_access.current_context(folder(console))
    if current.get("world"):
        raise Unfit("a world grants everything", hint="--project ID names one of Google's")
    return project_access.project(
        console.environ, current, project_access.credentials(console.environ)
    )
