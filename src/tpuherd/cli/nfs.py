"""`herd nfs`: one folder on all hosts of a target, from one of them or from a file server."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import FAILED, PARTLY, UNREACHED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.commands.mount_nfs import Answers, MountedFolder, NfsTarget, UnmountedFolders

NEW_NODES = "A new node mounts it by itself if the job says so: nfs: {{{}: {}}}"
without_questions = click.option(
    "-y", "--yes", is_flag=True, help="Include nodes of other herd users without asking."
)


@click.group()
def nfs() -> None:
    """Mount one folder on all hosts of TARGET, by NFS.

    The job field `nfs` does the same for every node that a job gets: docs/howto/nfs.md.
    """


@nfs.command()
@click.argument("target")
@click.argument("folder")
@click.option(
    "--server",
    default="",
    metavar="ADDRESS:/PATH|HOST",
    help="A file server and its path, or a host of yours that shares its own FOLDER; the default"
    " is the first host of TARGET.",
)
@without_questions
def mount(target: str, folder: str, server: str, yes: bool) -> ParsedCommand:
    """Mount FOLDER on all hosts of TARGET, now and after each reboot.

    Without a file server, the first host shares FOLDER of its own disk with the other hosts of
    TARGET, and with no one else. Repeat the command when hosts have been replaced.
    """
    return make_parsed_command("herd nfs mount", partial(run_mount, target, folder, server, yes))


@nfs.command()
@click.argument("target")
@click.argument("folder", default="")
@without_questions
def unmount(target: str, folder: str, yes: bool) -> ParsedCommand:
    """Unmount FOLDER, or all that herd has mounted.

    It undoes `mount`. Hosts that shared a folder with TARGET end that; its files stay on their
    disk.
    """
    return make_parsed_command("herd nfs unmount", partial(run_unmount, target, folder, yes))


@nfs.command()
@click.argument("target")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(target: str, json_: bool) -> ParsedCommand:
    """Show which hosts have which folders, and how they answer.

    The exit status is 1 if a folder is missing, stale or silent. A server that needs more than five
    seconds is silent.
    """
    return make_parsed_command("herd nfs status", partial(run_status, target, json_))


async def run_mount(
    target: str, folder: str, server: str, yes: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.commands.mount_nfs import mount_on_hosts

    found = await open_target("herd nfs mount", target, yes, console, home)
    made = await mount_on_hosts(found, folder, server)
    for line in mount_lines(made):
        await console.print_text(line)
    code = await report_failures(made.results, console)
    if console.said.loud >= 0:
        for line in note_lines(made):
            await console.print_notice(line)
    return code


async def run_unmount(
    target: str, folder: str, yes: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.commands.mount_nfs import unmount_on_hosts

    found = await open_target("herd nfs unmount", target, yes, console, home)
    made = await unmount_on_hosts(found, folder)
    for line in unmount_lines(made):
        await console.print_text(line)
    return await report_failures([*made.results, *made.exports], console)


async def run_status(target: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json
    from tpuherd.commands.ask_hosts import ask_hosts
    from tpuherd.ports import RpcRequest
    from tpuherd.views.nfs_table import is_well, status_table

    answers, code = await ask_hosts(target, RpcRequest(name="nfs.look"), console, home)
    if json_:
        await print_json(console, [{"host": host, **one} for host, one in answers.items()])
    elif answers:
        table = status_table(answers, console.line_width(1))
        await console.print_text(table or "no folders are mounted by NFS, and none are shared")
    return code or (0 if is_well(answers) else FAILED)


async def open_target(
    name: str, target: str, yes: bool, console: "Console", home: "HostAccess"
) -> "NfsTarget":
    """Find the hosts; ask before those of other herd users are changed."""
    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.commands.command_types import confirm_foreign_hosts, resolve_hosts
    from tpuherd.commands.mount_nfs import NfsTarget

    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(target, place, reach)
    prompter = TerminalPrompter(console, name, yes=yes)
    await confirm_foreign_hosts(hosts, prompter)
    return NfsTarget(hosts=hosts, place=place, reach=reach, prompter=prompter)


async def report_failures(results: "Answers", console: "Console") -> int:
    """Name each failure on stderr; return the exit status for them."""
    from tpuherd.errors import NotReached
    from tpuherd.remote.fanout import failure_lines

    for line in failure_lines(results):
        await console.print_notice(line)
    failed = [one.error for one in results if one.error is not None]
    if not failed:
        return 0
    if len(failed) < len(results):
        return PARTLY
    return UNREACHED if all(isinstance(one, NotReached) for one in failed) else FAILED


def mount_lines(made: "MountedFolder") -> list[str]:
    """Say what was mounted where."""
    from tpuherd.commands.command_types import label_hosts
    from tpuherd.remote.fanout import host_names
    from tpuherd.views.nfs_table import size_text

    lines = []
    if made.server is not None:
        clients = [one.host for one in made.results if one.error is None]
        to = f"to {host_names(clients)}" if clients else "to no other host"
        free = size_text(int(made.exported["free"]))
        lines.append(
            f"{label_hosts([made.server])[made.server]}: shares {made.folder} {to}, {free} free"
        )
    for again, word in ((False, "mounted"), (True, "already mounted")):
        done = [one for one in made.results if one.value and one.value["again"] is again]
        if done:
            free = size_text(min(int((one.value or {})["free"]) for one in done))
            hosts = host_names([one.host for one in done])
            lines.append(f"{hosts}: {word} {made.source} on {made.folder}, {free} free")
    return lines


def note_lines(made: "MountedFolder") -> list[str]:
    """Say what to know about it: who owns its files, and how long they live."""
    from tpuherd.commands.command_types import label_hosts
    from tpuherd.views.nfs_table import fate_words, login_lines, zone_lines

    done = [one for one in made.results if one.value is not None]
    if made.results and not done:
        return []
    names = label_hosts([one.host for one in done])
    answers = {names[one.host]: one.value or {} for one in done}
    server = made.server
    label = made.source if server is None else label_hosts([server])[server]
    uid = None if server is None else int(made.exported["uid"])
    lines = login_lines(answers, made.folder, label, uid)
    lines += zone_lines([one.host.zone for one in done] + ([server.zone] if server else []))
    if server is not None:
        lines.append(f"{made.folder} is on the disk of {label} and {fate_words([made.tier])}")
    elif done:
        lines.append(NEW_NODES.format(made.folder, made.source))
    return lines


def unmount_lines(made: "UnmountedFolders") -> list[str]:
    """Say what was undone, and who still shares a folder."""
    from tpuherd.remote.fanout import host_names

    done = [one for one in made.results if one.value is not None]
    rows = {(row["source"], row["folder"]) for one in done for row in (one.value or {})["gone"]}
    lines = []
    for source, folder in sorted(rows):
        asked = {"source": source, "folder": folder}
        hosts = [one.host for one in done if asked in (one.value or {})["gone"]]
        lines.append(f"{host_names(hosts)}: unmounted {source} from {folder}")
    for one in made.exports:
        for folder in (one.value or {}).get("gone", ()):
            lines.append(f"{host_names([one.host])}: shares {folder} no more, and keeps its files")
        for folder, clients in (one.value or {}).get("left", {}).items():
            lines.append(f"{host_names([one.host])}: still shares {folder} to {', '.join(clients)}")
    return lines or ["nothing to unmount"]
