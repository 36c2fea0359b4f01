"""Calls the agents of all hosts of a target."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpuherd.commands.command_types import confirm_foreign_hosts, label_hosts, resolve_hosts
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.exit_status import PARTLY, UNREACHED
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult

if TYPE_CHECKING:
    from tpuherd.jobs.open_project import Prompter

SECONDS = 60.0


async def ask_hosts(
    target: str,
    verb: RpcRequest,
    console: Console,
    home: HostAccess,
    *,
    seconds: float = SECONDS,
    prompter: "Prompter | None" = None,
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """Return the answers by host, and the exit status for the missing ones.

    With `prompter`, ask before touching nodes of other herd users.
    """
    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(target, place, reach)
    if prompter is not None:
        await confirm_foreign_hosts(hosts, prompter)
    names = label_hosts(hosts)

    async def one(host: Host) -> Mapping[str, Any]:
        link = await reach.pool.get_link(host)
        return await link.call(verb)

    results = await fanout.run_on_all(hosts, one, seconds=seconds)
    answers = {names[done.host]: done.value for done in results if done.value is not None}
    return answers, await report_unreached(results, console)


async def report_unreached(results: Sequence[FanoutResult[Any]], console: Console) -> int:
    """Name unreachable hosts on stderr; return the exit status for them."""
    for line in fanout.failure_lines(results):
        await console.print_notice(line)
    failed = sum(done.error is not None for done in results)
    if not failed:
        return 0
    return UNREACHED if failed == len(results) else PARTLY
