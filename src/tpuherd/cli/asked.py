"""One question to the agents of all hosts of a target."""

from collections.abc import Mapping
from typing import Any

from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.cli.exec_kept import missed
from tpuherd.cli.work import hosts_of, named
from tpuherd.hosts import fanout
from tpuherd.ports import Host, Verb

SECONDS = 60.0


async def ask(
    target: str,
    verb: str,
    asked: Mapping[str, Any],
    console: Console,
    home: Home,
    *,
    seconds: float = SECONDS,
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The answers by host, and what the missing ones are worth as an exit status."""
    place, reach = await home.reach(console)
    hosts = await hosts_of(target, place, reach)
    names = named(hosts)

    async def one(host: Host) -> Mapping[str, Any]:
        link = await reach.ways.link(host)
        return await link.call(Verb(name=verb, arguments=asked))

    results = await fanout.everyone(hosts, one, seconds=seconds)
    answers = {names[done.host]: done.value for done in results if done.value is not None}
    return answers, await missed(results, console)
