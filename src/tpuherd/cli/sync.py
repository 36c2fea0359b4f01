"""`herd sync`: copies code to hosts as git sees it, exactly the same on all."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import ABORTED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.sync.snapshot_store import Archive
    from tpuherd.sync.take_snapshot import Snapshot

DAY_S = 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncOptions:
    path: str | None
    repo: str | None
    ref: str | None
    target: str
    dest: str
    yes: bool
    force: bool
    some: bool
    relay: bool
    json_: bool


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[PATH] TARGET:DEST | [PATH] JOB")
@click.option("--repo", metavar="URL", help="Ship a commit of this repository instead of PATH.")
@click.option("--ref", metavar="SHA", help="The commit, tag or branch of --repo.")
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Ship likely secrets, more than 2 GB, and to nodes of other herd users without asking.",
)
@click.option("--force", is_flag=True, help="Merge with files that exist at DEST.")
@click.option(
    "--partial", is_flag=True, help="Switch the hosts that succeeded, even if others failed."
)
@click.option(
    "--relay",
    type=click.Choice(["auto", "none"]),
    default="auto",
    show_default=True,
    help="auto: hosts pass files on to each other; none: each gets them over your uplink.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def sync(words: tuple[str, ...], **said: bool | str | None) -> ParsedCommand:
    """Copy a folder to all hosts of TARGET: the files that git would commit, as they are now.

    These are tracked and untracked files, except those that .gitignore and .herdignore exclude.
    Only what the hosts lack is sent, once over your uplink; then all hosts switch, or none. DEST
    begins in the job's code, as for exec, and lasts as long as the node. Without DEST, the folder
    becomes the code of the job's next attempt, or that part of it (herd sync configs gpt); on a
    node of `herd up`, it is used at once.
    """
    *paths, place = words
    target, colon, dest = place.partition(":")
    if len(paths) != (0 if said["repo"] else 1):
        raise click.UsageError(
            "give a folder and a target: herd sync PATH TARGET:DEST, herd sync PATH JOB,"
            " or --repo URL --ref SHA in place of PATH"
        )
    if bool(said["repo"]) != bool(said["ref"]):
        raise click.UsageError("--repo and --ref go together")
    if colon and not dest:
        raise click.UsageError(f"give a folder on the hosts: {target}:DEST")
    load = SyncOptions(
        path=paths[0] if paths else None,
        repo=option_text(said["repo"]), ref=option_text(said["ref"]), target=target, dest=dest,
        yes=bool(said["yes"]), force=bool(said["force"]), some=bool(said["partial"]),
        relay=said["relay"] != "none", json_=bool(said["json_"]),
    )  # fmt: skip
    if not dest:
        return make_parsed_command("herd sync", partial(run_sync_job, load))
    return make_parsed_command("herd sync", partial(run_sync_hosts, load))


def option_text(value: bool | str | None) -> str | None:
    return value if isinstance(value, str) else None


async def run_sync_job(load: SyncOptions, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.change_code import change_code

    folder = None if load.repo else console.folder / Path(load.path or ".").expanduser()
    hint = f"for a node, give a folder: {load.target}:DEST"
    async with open_job_session(console, home, "herd sync", yes=load.yes) as here:
        made = await change_code(
            load.target, partial(take_chosen_snapshot, load, console), folder, here, hint=hint
        )
    if made is None:
        return ABORTED
    if load.json_:
        found = {"job": load.target, "snapshot": made.snapshot, "why": made.sentence}
        await print_json(console, found)
    else:
        await print_lines(console, made.sentence)
    return 0


async def run_sync_hosts(load: SyncOptions, console: "Console", home: "HostAccess") -> int:
    """Take the snapshot while connecting, ask where needed, and ship."""
    import asyncio

    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.commands.ship_to_hosts import connect_hosts, print_shipment, show_progress
    from tpuherd.jobs.upload_consent import ask_upload_consent
    from tpuherd.sync.ship import ShipOptions, ship
    from tpuherd.sync.snapshot_store import open_archive

    place, reach = await home.open_remote(console)
    archive = open_archive(place.folders.state)
    taking = partial(take_chosen_snapshot, load, console, archive)
    prompter = TerminalPrompter(console, "herd sync", yes=load.yes)
    async with show_progress(console), asyncio.TaskGroup() as group:
        linking = group.create_task(
            connect_hosts(load.target, console, home, partial=load.some, prompter=prompter)
        )
        first = group.create_task(asyncio.to_thread(taking))
    snapshot = await ask_upload_consent(first.result(), taking, archive, prompter)
    if snapshot is None:
        return ABORTED
    options = ShipOptions(relay=load.relay, force=load.force, partial=load.some, in_code=True)
    there = linking.result()
    async with show_progress(console) as report:
        shipment = await ship(
            snapshot, load.dest, there.links, archive=archive, report=report, options=options
        )
    title = f"Snapshot {snapshot.id[:12]} is in {load.dest} until the node is deleted"
    status = await print_shipment(title, shipment, load.json_, console, all=there.all)
    if not shipment.failed:
        await console.flush()
        await asyncio.to_thread(prune_snapshots_daily, archive, reach.clock.now())
    return status


def prune_snapshots_daily(archive: "Archive", now: float) -> None:
    """Delete old snapshots, at most once a day."""
    stamp = archive.folder / "tidied"
    if not stamp.exists() or stamp.stat().st_mtime < now - DAY_S:
        stamp.touch()
        archive.prune_old(now)


def take_chosen_snapshot(load: SyncOptions, console: "Console", archive: "Archive") -> "Snapshot":
    from tpuherd.sync.take_snapshot import snapshot_commit, snapshot_folder

    if load.repo and load.ref:
        return snapshot_commit(load.repo, load.ref, archive, console.environ)
    return snapshot_folder(
        console.folder / Path(load.path or ".").expanduser(), archive, console.environ
    )
