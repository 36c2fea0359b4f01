"""Takes a trace of training scripts by JAX's profiler server in each, and brings it here.

The server writes the trace to a file on its host; a folder for it is made there before, and removed
after the file has been copied.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import asyncssh

from tpuherd.commands.command_types import label_hosts
from tpuherd.commands.forward_port import Tunnel
from tpuherd.commands.grpc_calls import call_methods
from tpuherd.commands.host_script import run_on_host
from tpuherd.commands.profiler_messages import (
    SERVICE,
    TraceOrder,
    is_trace_empty,
    profile_request,
)
from tpuherd.commands.running_attempts import RunningAttempt, list_running_attempts
from tpuherd.errors import HerdError, InvalidInput, NotFound, NotReached, OperationFailed
from tpuherd.jobfile.launch_spec import PROFILER_PORT
from tpuherd.ports import Host, Link
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult
from tpuherd.sync.copy_files import fetch_files
from tpuherd_host.agent.host.runtime_metrics import InvalidMetrics

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession

CONNECT_S = 60.0
COLLECT_S = 120.0  #: for the end of a trace, beyond its length
LOOK_S = 0.5
SUFFIX = ".xplane.pb"
FOLDER = ("sh", "-c", "umask 077 && mktemp -d /tmp/herd-profile-XXXXXXXX")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOrder:
    """What the user asked for."""

    seconds: float
    session: str  #: names this trace
    into: Path  #: for TensorBoard's --logdir

    @property
    def folder(self) -> Path:
        return self.into / "plugins" / "profile" / self.session


@dataclass(frozen=True, kw_only=True, slots=True)
class HostTrace:
    """The trace of one host, and what it cost."""

    host: str
    slot: str
    file: Path
    bytes: int
    step_s_before: float | None  #: the usual time of a step; None: the script does not tell
    step_s_during: float | None


@dataclass(kw_only=True, slots=True)
class StepWatch:
    """The steps that a script reports while it is traced."""

    seen: list[tuple[float, int]] = field(default_factory=list)  #: time and step of each report

    def add_report(self, found: Sequence[RunningAttempt], attempt: str) -> None:
        for one in found:
            at, step = one.report.time, one.report.step
            is_new = at is not None and (not self.seen or at > self.seen[-1][0])
            if one.status.id == attempt and is_new and step is not None:
                self.seen.append((at or 0.0, step))

    @property
    def step_s(self) -> float | None:
        """The median time of a step; the first report is from before the trace."""
        inside = self.seen[1:]
        each = [
            (at - since) / (now - then)
            for (since, then), (at, now) in pairwise(inside)
            if now > then
        ]
        return median(each) if each else None


async def take_profile(
    hosts: Sequence[Host], order: ProfileOrder, reach: "RemoteSession"
) -> Sequence[FanoutResult[HostTrace]]:
    """Trace all hosts at the same time."""
    labels = label_hosts(hosts)

    async def trace_host(host: Host) -> HostTrace:
        link = await reach.pool.get_link(host)
        return await take_host_profile(host, labels[host], order, link, reach)

    seconds = CONNECT_S + order.seconds + 2 * COLLECT_S
    return await fanout.run_on_all(hosts, trace_host, seconds=seconds)


async def take_host_profile(
    host: Host, label: str, order: ProfileOrder, link: Link, reach: "RemoteSession"
) -> HostTrace:
    running = await list_running_attempts(link)
    if not running:
        raise NotFound("no attempt of a job runs there")
    attempt = next((one for one in running if one.report.profiler_port), running[0])
    made = await run_on_host(link, FOLDER)
    place = made.out.strip()
    if made.status or not place.startswith("/tmp/herd-profile-"):
        raise OperationFailed(f"can't make a folder for the trace: {made.err.strip()[:200]}")
    name = label.replace("/", "-")
    asked = TraceOrder(
        milliseconds=max(1, round(1000 * order.seconds)),
        folder=place,
        session=order.session,
        name=name,
    )
    watch = StepWatch()
    watch.add_report(running, attempt.status.id)
    watching = asyncio.create_task(watch_steps(watch, attempt.status.id, link, reach))
    try:
        try:
            ends = await open_profiler(host, attempt, reach)
            await trace_script(ends, asked)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        remote = f"{place}/{order.session}/{name}{SUFFIX}"
        await fetch_files([remote], link, order.folder, "")
    finally:
        with suppress(HerdError):  # a host that is lost now keeps a file in /tmp
            await run_on_host(link, ("rm", "-rf", place))
    file = order.folder / f"{name}{SUFFIX}"
    if not file.exists():
        raise OperationFailed("JAX wrote no trace; the log of the script may say why")
    return HostTrace(
        host=label, slot=attempt.status.slot, file=file, bytes=file.stat().st_size,
        step_s_before=attempt.report.step_s, step_s_during=watch.step_s,
    )  # fmt: skip


async def open_profiler(host: Host, attempt: RunningAttempt, reach: "RemoteSession") -> Tunnel:
    """Connect to the script's profiler; InvalidInput if it has none."""
    port = attempt.report.profiler_port
    try:
        return await reach.pool.open_tunnel(host, port or PROFILER_PORT)
    except NotReached as error:
        if port is not None:
            raise NotReached("its script, which had a profiler, is ending") from error
        job = attempt.status.slot.rpartition("-")[0] or "JOB"
        raise InvalidInput(
            "its script runs without a profiler",
            hint=f"herd set {job} profiler=true restarts it with one, if it uses"
            " tpuherd_host.train",
        ) from error


async def trace_script(ends: Tunnel, asked: TraceOrder) -> None:
    """Have the script trace itself; return when the file is complete."""
    try:
        async with asyncio.timeout(asked.milliseconds / 1000 + COLLECT_S):
            (reply,) = await call_methods(ends, SERVICE, [profile_request(asked)])
        empty = not reply.status and is_trace_empty(reply.content)
    except TimeoutError as error:
        raise NotReached("the profiler did not answer in time") from error
    except (NotReached, OperationFailed) as error:
        raise NotReached("the script ended while it was traced") from error
    except InvalidMetrics as error:
        raise OperationFailed(f"the profiler's answer makes no sense: {error}") from error
    except (OSError, asyncssh.Error) as error:
        raise NotReached("the connection was lost") from error
    finally:
        ends[1].close()
    if reply.status:
        raise OperationFailed(f"JAX's profiler: {reply.message or reply.status}")
    if empty:
        raise OperationFailed("JAX traced nothing: no program ran in this time")


async def watch_steps(watch: StepWatch, attempt: str, link: Link, reach: "RemoteSession") -> None:
    """Note each new report until cancelled."""
    while True:
        await reach.clock.sleep(LOOK_S)
        watch.add_report(await list_running_attempts(link), attempt)
