"""Links to all hosts of a target, for what is shipped to all of them or to none."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from tpuherd.cli.console import Console
from tpuherd.cli.errand import FAILED, PARTLY, Home
from tpuherd.core.targets import fold
from tpuherd.hosts import fanout
from tpuherd.hosts.link import AgentLink
from tpuherd.hosts.sync import Shipment
from tpuherd.ports import NotReached

SECONDS = 60.0


async def links(
    target: str, console: Console, home: Home, *, partial: bool = False
) -> list[AgentLink]:
    """To every one; NotReached names those that can't be."""
    _, reach = await home.reach(console)
    hosts = await reach.hosts(target)
    results = await fanout.everyone(hosts, reach.ways.link, seconds=SECONDS)
    found = [done.value for done in results if done.value is not None]
    failed = fanout.failures(results)
    if failed and not (partial and found):
        raise NotReached("; ".join(failed), hint="nothing was changed on any host")
    for line in failed:
        await console.tell(line)
    return found


def failed_on(failed: Mapping[str, str]) -> list[str]:
    """A line for each reason."""
    groups: dict[str, list[str]] = {}
    for host, why in failed.items():
        groups.setdefault(why, []).append(host)
    return [f"{fold(hosts)}: {why}" for why, hosts in groups.items()]


async def told(title: str, shipment: Shipment, json_: bool, console: Console) -> int:
    """What became of it, and its exit status."""
    if json_:
        await console.say(json.dumps(asdict(shipment), indent=2).encode() + b"\n")
    elif shipment.got and console.said.loud >= 0:
        new = [host for host in shipment.got if host not in shipment.unchanged]
        where = fold(new) if new else "every host had it already"
        took = f"{amount(shipment.bytes_up)} sent, {shipment.seconds:.1f} s"
        await console.say(f"{title}: {where} ({took})\n".encode())
    for host, how in shipment.slow.items():
        if console.said.loud > 0:
            await console.tell(f"{host}: {how}")
    for host, kept in shipment.kept.items():
        await console.tell(f"{host}: kept beside it: {', '.join(kept)}")
    for line in failed_on(shipment.failed):
        await console.tell(line)
    if not shipment.failed:
        return 0
    if shipment.got:
        return PARTLY
    if not shipment.unsure:
        await console.tell("so it was changed on no host")
    return FAILED


def amount(many: int) -> str:
    """12 B, 3.4 kB, 5.6 MB"""
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if many >= length:
            return f"{many / length:.3g} {unit}"
    return f"{many} B"
