"""One question to the agents of all hosts of a target."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.cli.exec_kept import missed
from tpuherd.commands.work import confirm_foreign_hosts, hosts_of, named
from tpuherd.hosts import fanout
from tpuherd.ports import Host, Verb

if TYPE_CHECKING:
    from tpuherd.desk.desk import Talk

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
