"""Reads the chips of many hosts: who holds them from the agent, the rest from libtpu by a tunnel.

Nothing is installed on the hosts for this. libtpu serves its metrics on a port of the host while a
program uses the chips; we connect to it through SSH, as `herd forward` does.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tpuherd.commands.assign_values import ReadMetrics, list_chip_readings, why_missing
from tpuherd.commands.chip_use import (
    BasicFacts,
    ChipUse,
    HostTasks,
    HostUsage,
    MetricsServer,
    parse_answer,
)
from tpuherd.commands.command_types import label_hosts, resolve_hosts
from tpuherd.commands.read_port_metrics import read_port_metrics
from tpuherd.commands.running_attempts import find_training
from tpuherd.errors import HerdError, NotFound, NotReached
from tpuherd.model.chip_readings import HostReading
from tpuherd.ports import Host, Link, RpcRequest
from tpuherd.remote import fanout
from tpuherd.targets import natural_key, split_bid_name
from tpuherd_host.agent.host.runtime_metrics import PORT

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess

CONNECT_S = 60.0  #: a new host's agent must be started first
ANSWER_S = 20.0
PATIENCE_S = 1.0  #: for the answers of a repeated reading, however short its interval is
RESOLVE_S = 60.0  #: between two looks for replaced nodes while all hosts answer
RESOLVE_LOST_S = 10.0  #: the same while a host does not


async def list_hosts(
    target: str | None, place: "ProjectAccess", reach: "RemoteSession"
) -> Sequence[Host]:
    """Return the hosts of a target, or of all nodes of our jobs."""
    if target is not None:
        return await resolve_hosts(target, place, reach)
    survey = await reach.directory.list_nodes()
    owners = reach.owners()
    named = [(node, split_bid_name(node.bid)) for node in survey.nodes if node.workers]
    ours = [f"{node.zone}/{node.name}" for node, bid in named if bid and bid.owner in owners]
    return await resolve_hosts(",".join(ours), place, reach) if ours else ()


async def repeat_readings(
    target: str | None, place: "ProjectAccess", reach: "RemoteSession", every_s: float
) -> AsyncGenerator[list[HostReading], None]:
    """Yield a reading every so many seconds, for ever; replaced nodes are found in a minute.

    The cloud is asked rarely, because it counts the questions.
    """
    hosts = await list_hosts(target, place, reach)
    asked_at = reach.clock.now()
    async with aclosing(HostPolls(reach)) as polls:
        while True:
            began_at = reach.clock.now()
            readings = await polls.read_answers(hosts, max(every_s, PATIENCE_S))
            yield readings
            lost = not readings or any(one.machine is None for one in readings)
            await reach.clock.sleep(max(0.0, began_at + every_s - reach.clock.now()))
            if reach.clock.now() - asked_at >= (RESOLVE_LOST_S if lost else RESOLVE_S):
                asked_at = reach.clock.now()
                with suppress(NotReached):  # the hosts known so far may answer all the same
                    hosts = await list_hosts(target, place, reach)


class HostPolls:
    """Repeated questions to hosts, one at a time to each: a host that is mute delays no other."""

    def __init__(self, reach: "RemoteSession") -> None:
        self._reach = reach
        self._known: dict[Host, HostReading] = {}
        self._open: dict[Host, asyncio.Task[HostReading]] = {}  #: not answered yet
        self._asked_at: dict[Host, float] = {}

    async def read_answers(self, hosts: Sequence[Host], within_s: float) -> list[HostReading]:
        """Ask the hosts that owe no answer; return a reading of each once all have answered, or
        after this time, with the reason for those that have not.
        """
        labels = label_hosts(hosts)
        await self._cancel(self._open.keys() - set(hosts))
        for host in hosts:
            if host not in self._open:
                self._open[host] = asyncio.create_task(self._poll(host, labels[host]))
                self._asked_at[host] = self._reach.clock.now()
        if self._open:
            await asyncio.wait(self._open.values(), timeout=within_s)
        for host, task in list(self._open.items()):
            if task.done():
                self._known[host] = self._open.pop(host).result()
        return sort_readings(self._newest(host, labels[host]) for host in hosts)

    async def _poll(self, host: Host, label: str) -> HostReading:
        read = partial(read_in_time, label=label, reach=self._reach)
        done = await fanout.try_host(host, read, CONNECT_S)
        return done.value or lost_reading(host, label, done.error, self._reach.clock.now())

    def _newest(self, host: Host, label: str) -> HostReading:
        """Return its answer; of a host that owes one, why there is none."""
        known = self._known.get(host)
        if known is not None and (host not in self._open or known.machine is None):
            return replace(known, host=label)
        now = self._reach.clock.now()
        mute = NotReached(f"no answer for {now - self._asked_at[host]:.0f} s")
        return lost_reading(host, label, mute, now)

    async def _cancel(self, hosts: Collection[Host]) -> None:
        tasks = [self._open.pop(host) for host in hosts]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        await self._cancel(list(self._open))


async def read_hosts(hosts: Sequence[Host], reach: "RemoteSession") -> list[HostReading]:
    """Ask all hosts at once; one that does not answer is a reading that says why."""
    labels = label_hosts(hosts)

    async def read(host: Host) -> HostReading:
        return await read_in_time(host, labels[host], reach)

    results = await fanout.run_on_all(hosts, read, seconds=CONNECT_S)
    return sort_readings(
        done.value or lost_reading(done.host, labels[done.host], done.error, reach.clock.now())
        for done in results
    )


def sort_readings(readings: Iterable[HostReading]) -> list[HostReading]:
    return sorted(readings, key=lambda reading: natural_key(reading.host))


async def read_in_time(host: Host, label: str, reach: "RemoteSession") -> HostReading:
    """Connect if necessary, then read; NotReached if the host takes too long."""
    await reach.pool.get_link(host)
    try:
        async with asyncio.timeout(ANSWER_S):
            return await read_host(host, label, reach)
    except TimeoutError as error:
        raise NotReached(f"no answer in {ANSWER_S:g} s") from error


def lost_reading(host: Host, label: str, error: HerdError | None, now: float) -> HostReading:
    """Return the reading of a host that could not be asked."""
    why = error.sentence if error is not None else "no answer"
    return HostReading(host=label, node=host.node, zone=host.zone, read_at=now, why=why)


async def read_host(host: Host, label: str, reach: "RemoteSession") -> HostReading:
    link = await reach.pool.get_link(host)
    (facts, usage), said = await asyncio.gather(
        ask_usage(link), link.call(RpcRequest(name="attempts"))
    )
    tasks = parse_answer(HostTasks, said)
    metrics = await asyncio.gather(*(read_port_metrics(host, one, reach) for one in usage.metrics))
    chips = list_chip_readings(usage, metrics, facts.generation)
    now = reach.clock.now()
    return HostReading(
        host=label, node=host.node, zone=host.zone, read_at=now,
        late_s=values_age_s(metrics, facts.time), machine=facts.machine_reading(usage),
        chips=chips, training=find_training(tasks.attempts, facts.time),
        clock_ahead_s=facts.time - now, notice=tasks.notice,
        why=why_missing(usage, metrics, chips),
    )  # fmt: skip


async def ask_usage(link: Link) -> tuple[BasicFacts, HostUsage]:
    try:
        said = await link.call(RpcRequest(name="usage"))
    except NotFound:  # the agent is of an older herd, and stays as long as it has work
        return await ask_old_agent(link)
    return parse_answer(BasicFacts, said), parse_answer(HostUsage, said)


async def ask_old_agent(link: Link) -> tuple[BasicFacts, HostUsage]:
    """Ask an agent that knows neither rates nor ports."""
    facts, holders = [await link.call(RpcRequest(name=name)) for name in ("facts", "holders")]
    use = parse_answer(ChipUse, holders)
    usage = HostUsage(holders=use.holders, devices=use.devices, metrics=(MetricsServer(port=PORT),))
    return parse_answer(BasicFacts, facts), usage


def values_age_s(metrics: Sequence[ReadMetrics], now: float) -> float:
    """Return how old the oldest value is, by the host's own clock."""
    stamps = [value.measured_at for one in metrics for value in one.values.values()]
    known = [at for at in stamps if at is not None and 0 < at <= now]
    return now - min(known) if known else 0.0
