"""Asks all hosts of a target for the stacks of their attempts' processes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuherd.commands.command_types import label_hosts, resolve_hosts
from tpuherd.commands.running_attempts import list_running_attempts
from tpuherd.engine.host_messages import InvalidMessage, StacksReply, parse_message
from tpuherd.errors import NotFound, OperationFailed
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult
from tpuherd.views.stack_groups import ProcessDump

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess

SECONDS = 60.0
TEXT_MAX = 128 << 10
PROCESSES_MAX = 256


async def dump_stacks(
    target: str, place: "ProjectAccess", reach: "RemoteSession"
) -> tuple[list[ProcessDump], Sequence[FanoutResult[list[ProcessDump]]]]:
    """Return the processes of all hosts, and each host's result.

    NotFound: no host runs an attempt.
    """
    hosts = await resolve_hosts(target, place, reach)
    labels = label_hosts(hosts)

    async def dump_host(host: Host) -> list[ProcessDump]:
        link = await reach.pool.get_link(host)
        found: list[ProcessDump] = []
        for one in await list_running_attempts(link):
            asked = RpcRequest(name="stacks", arguments={"attempt": one.status.id})
            try:
                said = parse_message(StacksReply, await link.call(asked))
            except InvalidMessage as error:
                raise OperationFailed(str(error)) from error
            found += [
                ProcessDump(
                    host=labels[host], slot=one.status.slot, attempt=one.status.id,
                    step=one.report.step, pid=process.pid, command=process.command,
                    text=process.text[:TEXT_MAX],
                )
                for process in said.processes[:PROCESSES_MAX]
            ]  # fmt: skip
        return found

    results = await fanout.run_on_all(hosts, dump_host, seconds=SECONDS)
    dumps = [one for done in results for one in done.value or ()]
    if not dumps and all(done.error is None for done in results):
        raise NotFound(
            f"no attempt of a job runs on {fanout.host_names(hosts)}",
            hint=f"herd why {target} says what it waits for",
        )
    return dumps, results
