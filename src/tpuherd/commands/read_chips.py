"""Reads the chips of many hosts: who holds them from the agent, the rest from libtpu by a tunnel.

Nothing is installed on the hosts for this. libtpu serves its metrics on a port of the host while a
program uses the chips; we connect to it through SSH, as `herd forward` does.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncssh

from tpuherd.commands.assign_values import ReadMetrics, list_chip_readings, why_missing
from tpuherd.commands.chip_use import BasicFacts, ChipUse, KnownNotices, parse_answer
from tpuherd.commands.command_types import label_hosts, resolve_hosts
from tpuherd.commands.grpc_calls import NOT_FOUND, UNIMPLEMENTED, call_methods
from tpuherd.commands.runtime_metrics import (
    METRICS,
    PORT,
    SERVICE,
    InvalidMetrics,
    metric_request,
    parse_device_values,
)
from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd.model.chip_readings import HostReading
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.targets import natural_key, split_bid_name

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess

CONNECT_S = 60.0  #: a new host's agent must be started first
ANSWER_S = 20.0
METRICS_S = 5.0
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
) -> AsyncIterator[list[HostReading]]:
    """Yield a reading every so many seconds, for ever; replaced nodes are found in a minute.

    The cloud is asked rarely, because it counts the questions.
    """
    hosts = await list_hosts(target, place, reach)
    asked_at = reach.clock.now()
    while True:
        began_at = reach.clock.now()
        readings = await read_hosts(hosts, reach)
        yield readings
        lost = not readings or any(one.machine is None for one in readings)
        await reach.clock.sleep(max(0.0, began_at + every_s - reach.clock.now()))
        if reach.clock.now() - asked_at >= (RESOLVE_LOST_S if lost else RESOLVE_S):
            asked_at = reach.clock.now()
            with suppress(NotReached):  # the hosts known so far may answer all the same
                hosts = await list_hosts(target, place, reach)


async def read_hosts(hosts: Sequence[Host], reach: "RemoteSession") -> list[HostReading]:
    """Ask all hosts at once; one that does not answer is a reading that says why."""

    async def read_or_explain(host: Host) -> HostReading:
        await reach.pool.get_link(host)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await read_host(host, labels[host], reach)
        except TimeoutError as error:
            raise NotReached(f"no answer in {ANSWER_S:g} s") from error

    labels = label_hosts(hosts)
    results = await fanout.run_on_all(hosts, read_or_explain, seconds=CONNECT_S)
    readings = [
        done.value or lost_reading(done.host, labels[done.host], done.error, reach.clock.now())
        for done in results
    ]
    return sorted(readings, key=lambda reading: natural_key(reading.host))


def lost_reading(host: Host, label: str, error: HerdError | None, now: float) -> HostReading:
    """Return the reading of a host that could not be asked."""
    why = error.sentence if error is not None else "no answer"
    return HostReading(host=label, node=host.node, zone=host.zone, read_at=now, why=why)


async def read_host(host: Host, label: str, reach: "RemoteSession") -> HostReading:
    link = await reach.pool.get_link(host)
    said = await asyncio.gather(
        *(link.call(RpcRequest(name=name)) for name in ("facts", "holders", "attempts"))
    )
    facts = parse_answer(BasicFacts, said[0])
    use = parse_answer(ChipUse, said[1])
    metrics = await read_metrics(host, reach)
    chips = list_chip_readings(use, metrics, facts.generation)
    measured = [one.measured_at for one in metrics.values.values() if one.measured_at is not None]
    late_s = facts.time - min(measured) if measured else 0.0
    return HostReading(
        host=label, node=host.node, zone=host.zone, read_at=reach.clock.now(),
        late_s=max(0.0, late_s), machine=facts.machine, chips=chips,
        notice=parse_answer(KnownNotices, said[2]).sentence,
        why=why_missing(use, metrics, chips),
    )  # fmt: skip


async def read_metrics(host: Host, reach: "RemoteSession") -> ReadMetrics:
    """Ask libtpu for all metrics; what it does not tell is missing, with the reason."""
    try:
        async with asyncio.timeout(METRICS_S):
            ends = await reach.pool.open_tunnel(host, PORT)
            try:
                asked = [metric_request(kind.name) for kind in METRICS]
                replies = await call_methods(ends, SERVICE, asked)
            finally:
                ends[1].close()
    except TimeoutError:
        return ReadMetrics(trouble=f"libtpu's metrics did not answer in {METRICS_S:g} s")
    except OperationFailed as error:
        return ReadMetrics(trouble=f"port {PORT} is not libtpu's: {error.sentence}")
    except (NotReached, OSError, asyncssh.Error):
        return ReadMetrics(is_silent=True)
    values, absent = {}, []
    for kind, reply in zip(METRICS, replies, strict=True):
        if reply.status in (NOT_FOUND, UNIMPLEMENTED):
            absent.append(kind.title)
        elif reply.status:
            return ReadMetrics(trouble=f"libtpu's metrics: {reply.message or reply.status}")
        else:
            try:
                values[kind.field] = parse_device_values(reply.content)
            except InvalidMetrics as error:
                return ReadMetrics(trouble=f"libtpu's metrics make no sense: {error}")
    return ReadMetrics(values=values, absent=tuple(absent))
