"""`herd cp`: files and folders to hosts, and from them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import FAILED, PARTLY


@dataclass(frozen=True, kw_only=True, slots=True)
class There:
    """A path on hosts."""

    target: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Copying:
    """How to copy to hosts."""

    yes: bool
    json_: bool


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SOURCE... DEST")
@click.option("-r", "-R", is_flag=True, hidden=True, expose_value=False)  # what scp has taught us
@click.option("-y", "--yes", is_flag=True, help="Also to nodes of another herd user.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def cp(paths: tuple[str, ...], yes: bool, json_: bool) -> Errand:
    """Copy files and folders to all hosts of a target, or from them.

    A path on hosts is TARGET:PATH, from the login's home on; ./a:b is one here. To many hosts
    it goes once over your uplink, and is in place on none before all have all of it. From many
    hosts it comes into a folder for each.

    \b
    herd cp data.bin notes/ gpt:data        herd cp 'gpt/w0:out/*.json' results
    """
    if len(paths) < 2:
        raise click.UsageError("say from where and to where: herd cp SOURCE... DEST")
    *sources, dest = map(parsed, paths)
    if isinstance(dest, There):
        here = [source for source in sources if isinstance(source, str)]
        if len(here) < len(sources):
            raise click.UsageError("from hosts to hosts goes by way of here: copy twice")
        return errand("herd cp", partial(to_hosts, here, dest, Copying(yes=yes, json_=json_)))
    there = [source for source in sources if isinstance(source, There)]
    if len(there) < len(sources):
        raise click.UsageError("neither end is on a host: write TARGET:PATH for that one")
    if len({source.target for source in there}) > 1:
        raise click.UsageError("all sources must be on the same target")
    return errand("herd cp", partial(from_hosts, there, dest, json_))


def parsed(word: str) -> str | There:
    """Where it is: on hosts if what stands before the colon may be a target."""
    target, colon, path = word.partition(":")
    if not colon or not target or target[0] in "./~":
        return word
    return There(target=target, path=path or ".")


async def to_hosts(
    sources: Sequence[str], dest: There, how: Copying, console: Console, home: Home
) -> int:
    """From here to all of them."""
    from tpuherd.cli.ask_user import Asking
    from tpuherd.commands.ship_to_hosts import linked, told, watched
    from tpuherd.sync.copy_files import copy_to

    talk = Asking(console, "herd cp", yes=how.yes)
    there = await linked(dest.target, console, home, talk=talk)
    paths = [console.folder / source for source in sources]
    async with watched(console) as report:
        shipment = await copy_to(paths, dest.path, there.links, report=report)
    where = "the login's home" if dest.path == "." else dest.path
    return await told(f"copied to {where}", shipment, how.json_, console)


async def from_hosts(
    sources: Sequence[There], dest: str, json_: bool, console: Console, home: Home
) -> int:
    """From all of them to here."""
    from tpuherd.commands.ship_to_hosts import amount, failed_on, left_out, linked
    from tpuherd.sync.copy_files import copy_from
    from tpuherd.targets import fold

    there = await linked(sources[0].target, console, home, partial=True)
    paths = [source.path for source in sources]
    fetched = await copy_from(paths, there.links, console.folder / dest)
    if json_:
        content = asdict(fetched) | {"got": {host: str(at) for host, at in fetched.got.items()}}
        await console.say(json.dumps(content, indent=2).encode() + b"\n")
    elif fetched.got and console.said.loud >= 0:
        came = f"{fold(fetched.got)} ({amount(fetched.bytes_down)} came)"
        await console.show(f"copied to {dest}: {came}")
    for host, left in fetched.skipped.items():
        for line in left_out(left):
            await console.tell(f"{host}: {line}")
    for line in failed_on(fetched.failed):
        await console.tell(line)
    if not fetched.failed and there.all:
        return 0
    return PARTLY if fetched.got else FAILED
