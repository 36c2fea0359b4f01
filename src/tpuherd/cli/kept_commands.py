"""Commands that were started earlier: lists them, shows their output, stops them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.cli.formats import clock_text
from tpuherd.cli.terminal import TerminalSession
from tpuherd.commands.ask_hosts import report_unreached
from tpuherd.commands.command_types import (
    confirm_foreign_hosts,
    label_hosts,
    parse_outcome,
    resolve_hosts,
)
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.commands.log_capture import LogCapture, open_log_store
from tpuherd.commands.multi_host_run import CommandRequest, MultiHostRun
from tpuherd.commands.output import create_printer
from tpuherd.commands.run_controller import GRACE_S, RunController
from tpuherd.errors import InvalidInput, NotFound, NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.log_store import COMMAND, LogInfo, log_host
from tpuherd.targets import fold_names
from tpuherd.views.format_text import format_table

KEPT_S = 86400.0
LOOK_S = 20.0
CommandInfo = Mapping[str, Any]


async def list_commands(reach: RemoteSession, host: Host) -> list[CommandInfo]:
    link = await reach.pool.get_link(host)
    reply = await link.call(RpcRequest(name="commands"))
    found: list[CommandInfo] = reply["commands"]
    return found


async def hosts_to_ask(
    target: str | None, place: ProjectAccess, reach: RemoteSession, id: str = ""
) -> list[Host]:
    """Return the hosts of the target, else those where a command was started in the last day."""
    if target is not None:
        return await resolve_hosts(target, place, reach)
    kept, now = open_log_store(place), reach.clock.now()
    about = [one for one in kept.list_logs() if one.kind == COMMAND and one.started > now - KEPT_S]
    places = {where for one in about if id in ("", one.id) for where in one.places}
    if not places and id:
        raise NotFound(
            f"no command {id} was started on this machine",
            hint=f"name the target: herd exec TARGET --attach {id}",
        )
    survey = await reach.directory.list_nodes()
    there = {(node.zone, node.name, node.incarnation) for node in survey.nodes}
    left = [one for one in places if (one.zone, one.node, one.incarnation) in there]
    if not left:
        if id:
            raise NotFound(
                f"the hosts of {id} are gone", hint="herd logs shows their output until then"
            )
        return []
    return await reach.resolve_hosts(
        ",".join(f"{one.zone}/{one.node}/w{one.worker}" for one in left)
    )


async def run_exec_list(target: str | None, json_: bool, console: Console, home: HostAccess) -> int:
    place, reach = await home.open_remote(console)
    hosts = await hosts_to_ask(target, place, reach)
    names = label_hosts(hosts)
    results = await fanout.run_on_all(hosts, partial(list_commands, reach), seconds=LOOK_S)
    if json_:
        rows = [{"host": names[d.host], **work} for d in results for work in d.value or ()]
        await console.write(json.dumps(rows, indent=2).encode() + b"\n")
    else:
        if text := commands_table(results, names, console.line_width(1)):
            await console.print_text(text)
    return await report_unreached(results, console)


def commands_table(
    results: Sequence[FanoutResult[list[CommandInfo]]],
    names: Mapping[Host, str],
    width: int | None = None,
) -> str:
    """Return a line for each command and state."""
    groups: dict[tuple[float, str, str, str], list[str]] = {}
    begun: dict[str, float] = {}
    for done in results:
        for work in done.value or ():
            at = begun.setdefault(work["id"], float(work["asked"]))
            key = (at, work["id"], command_state(work), work["title"])
            groups.setdefault(key, []).append(names[done.host])
    rows = [
        (id, clock_text(at), how, fold_names(hosts), title)
        for (at, id, how, title), hosts in sorted(groups.items())
    ]
    head = ("ID", "SINCE", "STATE", "HOSTS", "COMMAND")
    return format_table([head, *rows], width=width) if rows else ""


def command_state(work: CommandInfo) -> str:
    """Return running, exit 0 or lost."""
    if work["phase"] == "ended":
        return f"exit {parse_outcome('', work).status}"
    return "lost" if work["phase"] == "lost" else "running"


async def find_command(
    target: str | None, id: str, place: ProjectAccess, reach: RemoteSession, console: Console
) -> dict[Host, CommandInfo]:
    """Return the hosts that have the command, with what their agents know of it."""
    hosts = await hosts_to_ask(target, place, reach, id)
    results = await fanout.run_on_all(hosts, partial(list_commands, reach), seconds=LOOK_S)
    having = {done.host: work for done in results for work in done.value or () if work["id"] == id}
    failed = fanout.failure_lines(results)
    if not having:
        if failed:
            raise NotReached(f"the hosts that may run {id} can't be reached: {'; '.join(failed)}")
        raise NotFound(f"there is not a command {id}", hint="herd exec --list shows all")
    for line in failed:
        await console.print_notice(line)
    return having


async def run_exec_kill(
    target: str | None, id: str, yes: bool, console: Console, home: HostAccess
) -> int:
    place, reach = await home.open_remote(console)
    having = await find_command(target, id, place, reach, console)
    await confirm_foreign_hosts(list(having), TerminalPrompter(console, "herd exec", yes=yes))
    names = label_hosts(list(having))

    async def one(host: Host) -> CommandInfo:
        link = await reach.pool.get_link(host)
        asked = {"id": id, "grace_s": GRACE_S, "why": "its user killed it"}
        return await link.call(RpcRequest(name="stop", arguments=asked))

    results = await fanout.run_on_all(list(having), one)
    groups: dict[str, list[str]] = {}
    for done in results:
        if done.value is not None:
            was = having[done.host]["phase"] in ("ended", "lost")
            how = (
                f"had already ended: {command_state(done.value)}"
                if was
                else f"stopped: {command_state(done.value)}"
            )
            groups.setdefault(how, []).append(names[done.host])
    for how, labels in groups.items():
        await console.print_text(f"{fold_names(labels)}: {how}")
    return await report_unreached(results, console)


async def run_exec_attach(
    target: str | None, id: str, how: Mapping[str, Any], console: Console, home: HostAccess
) -> int:
    """Show its output from where the kept log ends; return its exit status."""
    place, reach = await home.open_remote(console)
    kept = open_log_store(place)
    having = await find_command(target, id, place, reach, console)
    hosts = list(having)
    names = label_hosts(hosts)
    first = having[hosts[0]]
    if first["terminal"]:
        if len(hosts) > 1:
            raise InvalidInput(
                f"{id} has a terminal on {fold_names(names.values())}: choose one host"
            )
        await confirm_foreign_hosts(hosts, TerminalPrompter(console, "herd exec", yes=how["yes"]))
        order = CommandRequest(id=id, verb="attach", words={"stdin": True})
        return await TerminalSession(console, reach, hosts[0], order).run()
    about = kept.find_log(id) or LogInfo(
        id=id, kind=COMMAND, title=first["title"], target=target or "",
        started=first["asked"], places=tuple(map(log_host, hosts)),
    )  # fmt: skip
    starts = {host: kept.end_offset(id, log_host(host)) for host in hosts}
    if any(starts.values()) and console.said.loud >= 0:
        await console.print_notice(f"showing new output; `herd logs --attempt {id}` shows the rest")
    # A viewer, perhaps in a forgotten window, must never slow the command down.
    order = CommandRequest(id=id, verb="attach", words={"hold": False}, starts=starts)
    into = how["into"] or Path(f"herd-{id}")
    shown = create_printer(console, list(names.values()), how["output"], into, reach.clock)
    keeping = LogCapture(kept, about, reach.clock)
    cast = MultiHostRun(order, names, reach.pool, shown, keeping, reach.clock)
    return await RunController(console, cast, shown, keeping, reach.clock).run(None)
