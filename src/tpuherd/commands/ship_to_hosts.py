"""Links to all hosts of a target, for what is shipped to all of them or to none."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tpuherd.clock import WallClock
from tpuherd.commands.command_types import confirm_foreign_hosts, hosts_of
from tpuherd.commands.console import Console, Gone
from tpuherd.commands.host_access import Home
from tpuherd.commands.log_capture import cancelled
from tpuherd.errors import NotReached
from tpuherd.exit_status import FAILED, PARTLY
from tpuherd.remote import fanout
from tpuherd.remote.agent_link import AgentLink
from tpuherd.sync.ship import Progress, Report, Shipment
from tpuherd.targets import fold

if TYPE_CHECKING:
    from tpuherd.jobs.open_project import Talk

SECONDS = 60.0
SHOW_S = 0.5
OVER = "\r\x1b[K"  #: back to the line's beginning, and clear it


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """Whom there is a way to."""

    links: list[AgentLink]
    all: bool  #: of those that were meant


async def linked(
    target: str,
    console: Console,
    home: Home,
    *,
    partial: bool = False,
    talk: "Talk | None" = None,
) -> Linked:
    """To every one, or, `partial`, to those that can be reached; others are named. What changes
    anything there brings somebody who can be asked."""
    place, reach = await home.reach(console)
    hosts = await hosts_of(target, place, reach)
    if talk is not None:
        await confirm_foreign_hosts(hosts, talk)
    results = await fanout.everyone(hosts, reach.ways.link, seconds=SECONDS)
    found = [done.value for done in results if done.value is not None]
    failed = fanout.failures(results)
    if failed and not (partial and found):
        raise NotReached("; ".join(failed), hint="nothing was changed on any host")
    for line in failed:
        await console.tell(line)
    return Linked(links=found, all=not failed)


@asynccontextmanager
async def watched(console: Console) -> AsyncIterator[Report]:
    """On a terminal a line that says how far it is, for as long as the block lasts."""
    latest: Progress | None = None

    def note(progress: Progress) -> None:
        nonlocal latest
        latest = progress

    async def show() -> None:
        try:
            while True:
                await clock.sleep(SHOW_S)
                await console.say(f"{OVER}{stage(latest)}".encode(), 2)
        except Gone:
            return

    clock = WallClock()
    if not console.terminal(2) or console.said.loud < 0:
        yield note
        return
    showing = asyncio.create_task(show())
    begun = clock.now()
    try:
        yield note
    finally:
        await cancelled([showing])
        if clock.now() - begun > SHOW_S:
            with suppress(Gone):
                await console.say(OVER.encode(), 2)


def stage(progress: Progress | None) -> str:
    """How far it is."""
    if progress is None:
        return "looking at the files, and at the hosts"
    ready = f", {progress.ready} of {progress.hosts} hosts filled" if progress.hosts > 1 else ""
    return f"{amount(progress.sent)} sent{ready}"


def failed_on(failed: Mapping[str, str]) -> list[str]:
    """A line for each reason."""
    groups: dict[str, list[str]] = {}
    for host, why in failed.items():
        groups.setdefault(why, []).append(host)
    return [f"{fold(hosts)}: {why}" for why, hosts in groups.items()]


async def told(
    title: str, shipment: Shipment, json_: bool, console: Console, *, all: bool = True
) -> int:
    """What became of it, and its exit status; `all`: of the hosts that were meant."""
    if json_:
        await console.say(json.dumps(asdict(shipment), indent=2).encode() + b"\n")
    elif shipment.got and console.said.loud >= 0:
        new = [host for host in shipment.got if host not in shipment.unchanged]
        where = fold(new) if new else "every host had it already"
        took = f"{amount(shipment.bytes_up)} sent, {shipment.seconds:.1f} s"
        await console.show(f"{title}: {where} ({took})")
    for host, how in shipment.slow.items():
        if console.said.loud > 0:
            await console.tell(f"{host}: {how}")
    for host, kept in shipment.kept.items():
        await console.tell(f"{host}: kept beside it: {', '.join(kept)}")
    for line in left_out(shipment.skipped):
        await console.tell(line)
    for line in failed_on(shipment.failed):
        await console.tell(line)
    if not shipment.failed and all:
        return 0
    if shipment.got:
        return PARTLY
    if not shipment.unsure:
        await console.tell("so it was changed on no host")
    return FAILED


def left_out(paths: Sequence[str]) -> list[str]:
    """The line for what can't be copied, if there is any."""
    return [f"left out, being no file: {', '.join(paths)}"] if paths else []


def amount(many: int) -> str:
    """12 B, 3.4 kB, 5.6 MB"""
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if many >= length:
            return f"{many / length:.3g} {unit}"
    return f"{many} B"
