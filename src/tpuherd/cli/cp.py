"""`herd cp`: copies files and folders to or from hosts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import FAILED, PARTLY

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPath:
    """A path on hosts."""

    target: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyOptions:
    yes: bool
    json_: bool


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SOURCE... DEST")
@click.option("-r", "-R", is_flag=True, hidden=True, expose_value=False)  # a habit from scp
@click.option("-y", "--yes", is_flag=True, help="Include nodes of other herd users without asking.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def cp(paths: tuple[str, ...], yes: bool, json_: bool) -> ParsedCommand:
    """Copy files and folders to all hosts of a target, or from them.

    A path on hosts is TARGET:PATH. It begins in the job's code, TARGET:~/PATH in your home
    there; write ./a:b for a local path with a colon. Copies to many hosts cross your uplink once
    and replace files on no host before all hosts have everything. Copies from many hosts go into a
    folder for each host.
    """
    if len(paths) < 2:
        raise click.UsageError("give a source and a destination: herd cp SOURCE... DEST")
    *sources, dest = map(parse_path, paths)
    if isinstance(dest, HostPath):
        here = [source for source in sources if isinstance(source, str)]
        if len(here) < len(sources):
            raise click.UsageError("can't copy from hosts to hosts: copy to this machine first")
        return make_parsed_command(
            "herd cp", partial(run_copy_to, here, dest, CopyOptions(yes=yes, json_=json_))
        )
    there = [source for source in sources if isinstance(source, HostPath)]
    if len(there) < len(sources):
        raise click.UsageError("no path is on a host: write TARGET:PATH for one side")
    if len({source.target for source in there}) > 1:
        raise click.UsageError("all sources must be on the same target")
    return make_parsed_command("herd cp", partial(run_copy_from, there, dest, json_))


def parse_path(word: str) -> str | HostPath:
    """Return a HostPath for TARGET:PATH, else the local path."""
    target, colon, path = word.partition(":")
    if not colon or not target or target[0] in "./~":
        return word
    return HostPath(target=target, path=path or ".")


async def run_copy_to(
    sources: Sequence[str], dest: HostPath, how: CopyOptions, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.commands.ship_to_hosts import connect_hosts, print_shipment, show_progress
    from tpuherd.sync.copy_files import copy_to

    prompter = TerminalPrompter(console, "herd cp", yes=how.yes)
    there = await connect_hosts(dest.target, console, home, prompter=prompter)
    paths = [console.folder / source for source in sources]
    async with show_progress(console) as report:
        shipment = await copy_to(paths, dest.path, there.links, report=report, in_code=True)
    in_job = any(link.host.code_folder for link in there.links)
    begin = "the folder where commands begin" if in_job else "the login's home"
    where = begin if dest.path == "." else dest.path
    return await print_shipment(f"copied to {where}", shipment, how.json_, console)


async def run_copy_from(
    sources: Sequence[HostPath], dest: str, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.commands.ship_to_hosts import (
        ONLY_HOME,
        connect_hosts,
        failure_lines,
        skipped_lines,
    )
    from tpuherd.sync.copy_files import copy_from
    from tpuherd.targets import fold_names
    from tpuherd.views.format_text import format_bytes

    there = await connect_hosts(sources[0].target, console, home, partial=True)
    paths = [source.path for source in sources]
    fetched = await copy_from(paths, there.links, console.folder / dest)
    if json_:
        content = asdict(fetched) | {"got": {host: str(at) for host, at in fetched.got.items()}}
        await console.write(json.dumps(content, indent=2).encode() + b"\n")
    elif fetched.got and console.said.loud >= 0:
        came = f"{fold_names(fetched.got)} ({format_bytes(fetched.bytes_down)} received)"
        await console.print_text(f"copied to {dest}: {came}")
    for host, found in fetched.only_home.items():
        await console.print_notice(f"{host}: {ONLY_HOME.format(', '.join(found), found[0])}")
    for host, left in fetched.skipped.items():
        for line in skipped_lines(left):
            await console.print_notice(f"{host}: {line}")
    for line in failure_lines(fetched.failed):
        await console.print_notice(line)
    if not fetched.failed and there.all:
        return 0
    return PARTLY if fetched.got else FAILED
