"""Connects to all hosts of a target for sync and cp, and reports the result."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tpuherd.clock import WallClock
from tpuherd.commands.command_types import confirm_foreign_hosts, resolve_hosts
from tpuherd.commands.console import Console, ReaderGone
from tpuherd.commands.host_access import HostAccess
from tpuherd.commands.log_capture import cancel_tasks
from tpuherd.errors import NotReached
from tpuherd.exit_status import FAILED, PARTLY
from tpuherd.remote import fanout
from tpuherd.remote.agent_link import AgentLink
from tpuherd.sync.ship import Progress, ProgressCallback, Shipment
from tpuherd.targets import fold_names
from tpuherd.views.format_text import format_bytes

if TYPE_CHECKING:
    from tpuherd.jobs.open_project import Prompter

SECONDS = 60.0
ONLY_HOME = (
    "{} is in your home and not in the code of the job; the next release looks in the code only:"
    " write ~/{}"
)
SHOW_S = 0.5
OVER = "\r\x1b[K"  #: back to the line's beginning, and clear it


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLinks:
    links: list[AgentLink]
    all: bool  #: whether no host is missing


async def connect_hosts(
    target: str,
    console: Console,
    home: HostAccess,
    *,
    partial: bool = False,
    prompter: "Prompter | None" = None,
) -> HostLinks:
    """Connect to all hosts, or with `partial` to the reachable ones; others are named.

    With `prompter`, ask before touching nodes of other herd users.
    """
    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(target, place, reach)
    if prompter is not None:
        await confirm_foreign_hosts(hosts, prompter)
    results = await fanout.run_on_all(hosts, reach.pool.get_link, seconds=SECONDS)
    found = [done.value for done in results if done.value is not None]
    failed = fanout.failure_lines(results)
    if failed and not (partial and found):
        raise NotReached("; ".join(failed), hint="nothing was changed on any host")
    for line in failed:
        await console.print_notice(line)
    return HostLinks(links=found, all=not failed)


@asynccontextmanager
async def show_progress(console: Console) -> AsyncIterator[ProgressCallback]:
    """Show a line of progress on a terminal, as long as the block lasts."""
    latest: Progress | None = None

    def note(progress: Progress) -> None:
        nonlocal latest
        latest = progress

    async def show() -> None:
        try:
            while True:
                await clock.sleep(SHOW_S)
                await console.write(f"{OVER}{progress_text(latest)}".encode(), 2)
        except ReaderGone:
            return

    clock = WallClock()
    if not console.is_terminal(2) or console.said.loud < 0:
        yield note
        return
    showing = asyncio.create_task(show())
    begun = clock.now()
    try:
        yield note
    finally:
        await cancel_tasks([showing])
        if clock.now() - begun > SHOW_S:
            with suppress(ReaderGone):
                await console.write(OVER.encode(), 2)


def progress_text(progress: Progress | None) -> str:
    if progress is None:
        return "checking files and hosts"
    ready = f", {progress.ready} of {progress.hosts} hosts filled" if progress.hosts > 1 else ""
    return f"{format_bytes(progress.sent)} sent{ready}"


def failure_lines(failed: Mapping[str, str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for host, why in failed.items():
        groups.setdefault(why, []).append(host)
    return [f"{fold_names(hosts)}: {why}" for why, hosts in groups.items()]


async def print_shipment(
    title: str, shipment: Shipment, json_: bool, console: Console, *, all: bool = True
) -> int:
    """Print the result and return the exit status; `all`: no host was unreachable."""
    if json_:
        await console.write(json.dumps(asdict(shipment), indent=2).encode() + b"\n")
    elif shipment.got and console.said.loud >= 0:
        new = [host for host in shipment.got if host not in shipment.unchanged]
        where = fold_names(new) if new else "all hosts had it already"
        took = f"{format_bytes(shipment.bytes_up)} sent, {shipment.seconds:.1f} s"
        await console.print_text(f"{title}: {where} ({took})")
    for host, how in shipment.slow.items():
        if console.said.loud > 0:
            await console.print_notice(f"{host}: {how}")
    for host, kept in shipment.kept.items():
        await console.print_notice(f"{host}: kept next to it: {', '.join(kept)}")
    if shipment.only_home:
        hosts, dest = fold_names(shipment.only_home), shipment.dest
        await console.print_notice(f"{hosts}: {ONLY_HOME.format(dest, dest)}")
    for line in skipped_lines(shipment.skipped):
        await console.print_notice(line)
    for line in failure_lines(shipment.failed):
        await console.print_notice(line)
    if not shipment.failed and all:
        return 0
    if shipment.got:
        return PARTLY
    if not shipment.unsure:
        await console.print_notice("nothing was changed on any host")
    return FAILED


def skipped_lines(paths: Sequence[str]) -> list[str]:
    """Return a line for what can't be copied."""
    return [f"skipped, not regular files: {', '.join(paths)}"] if paths else []
