"""Runs a command on hosts and collects its output: `herd exec` for Python."""

import asyncio

from tpuherd.commands.command_types import (
    ExecRequest,
    confirm_foreign_hosts,
    label_hosts,
    new_command_id,
    resolve_hosts,
    worst_status,
)
from tpuherd.commands.log_capture import LogCapture, cancel_tasks
from tpuherd.commands.multi_host_run import CommandRequest, MultiHostRun
from tpuherd.commands.stdin_fanout import ScriptInput, StdinFanout
from tpuherd.exit_status import TIMED_OUT
from tpuherd.jobs.open_project import Prompter
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.results import CommandResult, HostResult
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.log_store import COMMAND, LogInfo, LogStore, log_host
from tpuherd_host.agent.log_records import Record

GRACE_S = 10.0
STDOUT = 1


class OutputCollector:
    def __init__(self) -> None:
        self._written: dict[tuple[str, bool], bytearray] = {}

    def host_text(self, host: str, *, stdout: bool) -> str:
        """Return the stdout of one host, or everything else it wrote."""
        return self._written.get((host, stdout), bytearray()).decode(errors="replace")

    def merge_key(self, told: tuple[int, Record]) -> tuple[int, float]:
        return told[1].port, 0.0

    async def feed(self, host: str, port: int, piece: bytes, at: float) -> None:
        self._written.setdefault((host, port == STDOUT), bytearray()).extend(piece)

    async def end_host(self, host: str) -> None:
        """Do nothing: all output is kept."""

    async def close(self) -> None:
        """Do nothing, as well."""


async def run_command(
    request: ExecRequest, place: ProjectAccess, reach: RemoteSession, prompter: Prompter
) -> CommandResult:
    """Run it on all hosts until it has ended on each; cancelling stops it."""
    hosts = await resolve_hosts(request.target, place, reach)
    await confirm_foreign_hosts(hosts, prompter)
    names = label_hosts(hosts)
    order = CommandRequest(
        id=new_command_id(), verb="run", words=request.agent_arguments,
        stdin=bool(request.script), in_code=request.in_code)  # fmt: skip
    about = LogInfo(
        id=order.id, kind=COMMAND, title=request.title, target=request.target,
        started=reach.clock.now(), places=tuple(map(log_host, hosts)),
    )  # fmt: skip
    written = OutputCollector()
    keeping = LogCapture(LogStore(place.logs_folder), about, reach.clock)
    cast = MultiHostRun(order, names, reach.pool, written, keeping, reach.clock)
    work = [cast.watch_silent_hosts(), keeping.flush_regularly()]
    if request.script:
        cast.supply = StdinFanout(ScriptInput(request.script), hosts)
        work.append(cast.supply.read_to_end())
    late = False
    async with asyncio.TaskGroup() as group:
        playing = group.create_task(cast.run())
        beside = [group.create_task(one) for one in work]
        try:
            await asyncio.wait([playing], timeout=request.timeout_s)
            if not playing.done():
                late = True
                await cast.stop(GRACE_S)
                await asyncio.wait([playing])
        except asyncio.CancelledError:
            await cast.stop(GRACE_S)
            raise
        finally:
            await cancel_tasks(beside)
    outcomes = [cast.outcomes[host] for host in hosts]
    status = worst_status(outcomes)
    keeping.record_end(status)
    results = [
        HostResult(
            host=one.label,
            status=one.status,
            stdout=written.host_text(one.label, stdout=True),
            stderr=written.host_text(one.label, stdout=False),
            why=one.why,
        )
        for one in outcomes
    ]
    return CommandResult(id=order.id, status=TIMED_OUT if late else status, hosts=tuple(results))
