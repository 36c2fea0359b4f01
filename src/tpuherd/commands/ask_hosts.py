"""One question to the agents of all hosts of a target."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpuherd.commands.command_types import confirm_foreign_hosts, hosts_of, named
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import PARTLY, UNREACHED
from tpuherd.ports import Host, Verb
from tpuherd.remote import fanout
from tpuherd.remote.fanout import Done

if TYPE_CHECKING:
    from tpuherd.jobs.open_project import Talk

SECONDS = 60.0


async def ask(
    target: str,
    verb: Verb,
    console: Console,
    home: Home,
    *,
    seconds: float = SECONDS,
    talk: "Talk | None" = None,
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The answers by host, and what the missing ones are worth as an exit status. What changes
    anything brings somebody who can be asked."""
    place, reach = await home.reach(console)
    hosts = await hosts_of(target, place, reach)
    if talk is not None:
        await confirm_foreign_hosts(hosts, talk)
    names = named(hosts)

    async def one(host: Host) -> Mapping[str, Any]:
        link = await reach.ways.link(host)
        return await link.call(verb)

    results = await fanout.everyone(hosts, one, seconds=seconds)
    answers = {names[done.host]: done.value for done in results if done.value is not None}
    return answers, await missed(results, console)


async def missed(results: Sequence[Done[Any]], console: Console) -> int:
    """Who could not be asked, on stderr; and the exit status that this is worth."""
    for line in fanout.failures(results):
        await console.tell(line)
    failed = sum(done.error is not None for done in results)
    if not failed:
        return 0
    return UNREACHED if failed == len(results) else PARTLY
