"""Reads libtpu's values on one port of a host, by a tunnel through SSH."""

import asyncio
from typing import TYPE_CHECKING

import asyncssh

from tpuherd.commands.assign_values import ReadMetrics
from tpuherd.commands.chip_use import MetricsServer
from tpuherd.commands.grpc_calls import NOT_FOUND, UNIMPLEMENTED, GrpcReply, call_methods
from tpuherd.commands.runtime_metrics import METRICS
from tpuherd.errors import NotReached, OperationFailed
from tpuherd.ports import Host
from tpuherd_host.agent.host.runtime_metrics import (
    SERVICE,
    DeviceValues,
    InvalidMetrics,
    metric_request,
    parse_device_values,
)

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession

METRICS_S = 5.0


async def read_port_metrics(
    host: Host, server: MetricsServer, reach: "RemoteSession", *, seconds: float = METRICS_S
) -> ReadMetrics:
    """Ask for all metrics; what is not told is missing, with the reason."""
    port, pid = server.port, server.pid
    try:
        async with asyncio.timeout(seconds):
            ends = await reach.pool.open_tunnel(host, port)
            try:
                asked = [metric_request(kind.name) for kind in METRICS]
                replies = await call_methods(ends, SERVICE, asked)
            finally:
                ends[1].close()
    except TimeoutError:
        why = f"libtpu's metrics did not answer in {seconds:g} s"
        return ReadMetrics(port=port, pid=pid, trouble=why)
    except OperationFailed as error:
        why = f"port {port} is not libtpu's: {error.sentence}"
        return ReadMetrics(port=port, pid=pid, trouble=why)
    except (NotReached, OSError, asyncssh.Error):
        return ReadMetrics(port=port, pid=pid, is_silent=True)
    return parse_replies(server, replies)


def parse_replies(server: MetricsServer, replies: list[GrpcReply]) -> ReadMetrics:
    """Parse an answer for each metric."""
    port, pid = server.port, server.pid
    values: dict[str, DeviceValues] = {}
    absent = []
    for kind, reply in zip(METRICS, replies, strict=True):
        if reply.status in (NOT_FOUND, UNIMPLEMENTED):
            absent.append(kind.title)
        elif reply.status:
            why = f"libtpu's metrics: {reply.message or reply.status}"
            return ReadMetrics(port=port, pid=pid, trouble=why)
        else:
            try:
                values[kind.field] = parse_device_values(reply.content)
            except InvalidMetrics as error:
                why = f"libtpu's metrics make no sense: {error}"
                return ReadMetrics(port=port, pid=pid, trouble=why)
    return ReadMetrics(port=port, pid=pid, values=values, absent=tuple(absent))
