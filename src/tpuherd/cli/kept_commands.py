"""Commands that were begun before: list them, see their output again, stop them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tpuherd.cli.ask_user import Asking
from tpuherd.cli.formats import clock
from tpuherd.cli.terminal import Session
from tpuherd.commands.ask_hosts import missed
from tpuherd.commands.command_types import confirm_foreign_hosts, ended, hosts_of, named, place_of
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.commands.log_capture import Keeping, shelf
from tpuherd.commands.multi_host_run import Cast, Order
from tpuherd.commands.output import screen
from tpuherd.commands.run_controller import GRACE_S, Play
from tpuherd.errors import NotFound, NotReached, Unfit
from tpuherd.ports import Host, Verb
from tpuherd.remote import fanout
from tpuherd.remote.fanout import Done
from tpuherd.remote.resolve_hosts import Reach
from tpuherd.settings.project_access import Place
from tpuherd.store.log_store import COMMAND, About
from tpuherd.targets import fold
from tpuherd.views.format_text import lined

KEPT_S = 86400.0
LOOK_S = 20.0
Work = Mapping[str, Any]


async def commands_of(reach: Reach, host: Host) -> list[Work]:
    """What its agent has."""
    link = await reach.ways.link(host)
    reply = await link.call(Verb(name="commands"))
    found: list[Work] = reply["commands"]
    return found


async def looked_for(target: str | None, place: Place, reach: Reach, id: str = "") -> list[Host]:
    """The hosts to ask: those of the target, else where we began something in the last day."""
    if target is not None:
        return await hosts_of(target, place, reach)
    kept, now = shelf(place), reach.clock.now()
    about = [one for one in kept.all() if one.kind == COMMAND and one.started > now - KEPT_S]
    places = {where for one in about if id in ("", one.id) for where in one.places}
    if not places and id:
        raise NotFound(
            f"no command {id} was begun here", hint=f"say where: herd exec TARGET --attach {id}"
        )
    survey = await reach.registrar.look()
    there = {(node.zone, node.name, node.incarnation) for node in survey.nodes}
    left = [one for one in places if (one.zone, one.node, one.incarnation) in there]
    if not left:
        if id:
            raise NotFound(
                f"the hosts of {id} are gone", hint="herd logs shows what they said until then"
            )
        return []
    return await reach.hosts(",".join(f"{one.zone}/{one.node}/w{one.worker}" for one in left))


async def show(target: str | None, json_: bool, console: Console, home: Home) -> int:
    """The list."""
    place, reach = await home.reach(console)
    hosts = await looked_for(target, place, reach)
    names = named(hosts)
    results = await fanout.everyone(hosts, partial(commands_of, reach), seconds=LOOK_S)
    if json_:
        rows = [{"host": names[d.host], **work} for d in results for work in d.value or ()]
        await console.say(json.dumps(rows, indent=2).encode() + b"\n")
    else:
        if text := table(results, names, console.width(1)):
            await console.show(text)
    return await missed(results, console)


def table(
    results: Sequence[Done[list[Work]]], names: Mapping[Host, str], width: int | None = None
) -> str:
    """A line for each command and each way in which it stands."""
    groups: dict[tuple[float, str, str, str], list[str]] = {}
    begun: dict[str, float] = {}
    for done in results:
        for work in done.value or ():
            at = begun.setdefault(work["id"], float(work["asked"]))
            key = (at, work["id"], stands(work), work["title"])
            groups.setdefault(key, []).append(names[done.host])
    rows = [
        (id, clock(at), how, fold(hosts), title)
        for (at, id, how, title), hosts in sorted(groups.items())
    ]
    head = ("ID", "SINCE", "STATE", "HOSTS", "COMMAND")
    return lined([head, *rows], width=width) if rows else ""


def stands(work: Work) -> str:
    """running, exit 0, killed by 9, lost"""
    if work["phase"] == "ended":
        return f"exit {ended('', work).status}"
    return "lost" if work["phase"] == "lost" else "running"


async def found(
    target: str | None, id: str, place: Place, reach: Reach, console: Console
) -> dict[Host, Work]:
    """Where the command is, and how it stands there."""
    hosts = await looked_for(target, place, reach, id)
    results = await fanout.everyone(hosts, partial(commands_of, reach), seconds=LOOK_S)
    having = {done.host: work for done in results for work in done.value or () if work["id"] == id}
    failed = fanout.failures(results)
    if not having:
        if failed:
            raise NotReached(f"who may have {id} can't be asked: {'; '.join(failed)}")
        raise NotFound(f"no command {id} is there", hint="herd exec --list shows what is")
    for line in failed:
        await console.tell(line)
    return having


async def kill(target: str | None, id: str, yes: bool, console: Console, home: Home) -> int:
    """Stop it everywhere."""
    place, reach = await home.reach(console)
    having = await found(target, id, place, reach, console)
    await confirm_foreign_hosts(list(having), Asking(console, "herd exec", yes=yes))
    names = named(list(having))

    async def one(host: Host) -> Work:
        link = await reach.ways.link(host)
        asked = {"id": id, "grace_s": GRACE_S, "why": "its user killed it"}
        return await link.call(Verb(name="stop", arguments=asked))

    results = await fanout.everyone(list(having), one)
    groups: dict[str, list[str]] = {}
    for done in results:
        if done.value is not None:
            was = having[done.host]["phase"] in ("ended", "lost")
            how = f"had ended: {stands(done.value)}" if was else f"stopped: {stands(done.value)}"
            groups.setdefault(how, []).append(names[done.host])
    for how, labels in groups.items():
        await console.show(f"{fold(labels)}: {how}")
    return await missed(results, console)


async def attach(
    target: str | None, id: str, how: Mapping[str, Any], console: Console, home: Home
) -> int:
    """Its output from where ours ends, and its exit status."""
    place, reach = await home.reach(console)
    kept = shelf(place)
    having = await found(target, id, place, reach, console)
    hosts = list(having)
    names = named(hosts)
    first = having[hosts[0]]
    if first["terminal"]:
        if len(hosts) > 1:
            raise Unfit(f"{id} has a terminal on {fold(names.values())}: name one of them")
        await confirm_foreign_hosts(hosts, Asking(console, "herd exec", yes=how["yes"]))
        order = Order(id=id, verb="attach", words={"stdin": True})
        return await Session(console, reach, hosts[0], order).through()
    about = kept.of(id) or About(
        id=id, kind=COMMAND, title=first["title"], target=target or "",
        started=first["asked"], places=tuple(map(place_of, hosts)),
    )  # fmt: skip
    starts = {host: kept.end(id, place_of(host)) for host in hosts}
    if any(starts.values()) and console.said.loud >= 0:
        await console.tell(f"from now on; herd logs --attempt {id} shows what was before")
    # Who only looks on, perhaps in a window that is forgotten, never makes it wait.
    order = Order(id=id, verb="attach", words={"hold": False}, starts=starts)
    into = how["into"] or Path(f"herd-{id}")
    shown = screen(console, list(names.values()), how["output"], into, reach.clock)
    keeping = Keeping(kept, about, reach.clock)
    cast = Cast(order, names, reach.ways, shown, keeping, reach.clock)
    return await Play(console, cast, shown, keeping, reach.clock).through(None)
