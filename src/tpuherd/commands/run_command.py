"""Runs a command on hosts and collects what it writes: `herd exec`, for programs."""

import asyncio

from tpuherd.commands.command_types import (
    Wish,
    confirm_foreign_hosts,
    hosts_of,
    named,
    new_id,
    place_of,
    worst,
)
from tpuherd.commands.log_capture import Keeping, cancelled
from tpuherd.commands.multi_host_run import Cast, Order
from tpuherd.exit_status import TIMED_OUT
from tpuherd.jobs.open_project import Talk
from tpuherd.remote.resolve_hosts import Reach
from tpuherd.results import CommandResult, HostResult
from tpuherd.settings.project_access import Place
from tpuherd.store.log_store import COMMAND, About, Shelf
from tpuherd_host.agent.records import Record

GRACE_S = 10.0
STDOUT = 1


class Collected:
    """What each host wrote."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, bool], bytearray] = {}

    def text(self, host: str, *, stdout: bool) -> str:
        """All of one host's output, or of everything else."""
        return self._written.get((host, stdout), bytearray()).decode(errors="replace")

    def together(self, told: tuple[int, Record]) -> tuple[int, float]:
        """Records of one port are one piece."""
        return told[1].port, 0.0

    async def feed(self, host: str, port: int, piece: bytes, at: float) -> None:
        """A host wrote this."""
        self._written.setdefault((host, port == STDOUT), bytearray()).extend(piece)

    async def end(self, host: str) -> None:
        """Nothing is to be done."""

    async def close(self) -> None:
        """Nor here."""


async def run_command(wish: Wish, place: Place, reach: Reach, talk: Talk) -> CommandResult:
    """On all hosts of its target, until it has ended on each; who gives up waiting stops it."""
    hosts = await hosts_of(wish.target, place, reach)
    await confirm_foreign_hosts(hosts, talk)
    names = named(hosts)
    order = Order(id=new_id(), verb="run", words=wish.words)
    about = About(
        id=order.id, kind=COMMAND, title=wish.title, target=wish.target,
        started=reach.clock.now(), places=tuple(map(place_of, hosts)),
    )  # fmt: skip
    written, keeping = Collected(), Keeping(Shelf(place.logs), about, reach.clock)
    cast = Cast(order, names, reach.ways, written, keeping, reach.clock)
    late = False
    async with asyncio.TaskGroup() as group:
        playing = group.create_task(cast.play())
        beside = [group.create_task(one) for one in (cast.watch(), keeping.tick())]
        try:
            await asyncio.wait([playing], timeout=wish.timeout_s)
            if not playing.done():
                late = True
                await cast.stop(GRACE_S)
                await asyncio.wait([playing])
        except asyncio.CancelledError:
            await cast.stop(GRACE_S)
            raise
        finally:
            await cancelled(beside)
    outcomes = [cast.outcomes[host] for host in hosts]
    status = worst(outcomes)
    keeping.end(status)
    results = [
        HostResult(
            host=one.label,
            status=one.status,
            stdout=written.text(one.label, stdout=True),
            stderr=written.text(one.label, stdout=False),
            why=one.why,
        )
        for one in outcomes
    ]
    return CommandResult(id=order.id, status=TIMED_OUT if late else status, hosts=tuple(results))
