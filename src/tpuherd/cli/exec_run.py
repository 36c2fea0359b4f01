"""`herd exec TARGET -- COMMAND`: run it on all hosts, and tell how it went."""

import os
import stat
from pathlib import Path

from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.commands.command_types import (
    ExecRequest,
    confirm_foreign_hosts,
    label_hosts,
    log_place,
    new_command_id,
    resolve_hosts,
)
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.commands.log_capture import LogCapture, open_log_store
from tpuherd.commands.multi_host_run import CommandRequest, MultiHostRun
from tpuherd.commands.output import create_printer
from tpuherd.commands.run_controller import RunController
from tpuherd.commands.stdin_fanout import StdinFanout
from tpuherd.store.log_store import COMMAND, LogInfo


async def run_exec(
    wish: ExecRequest, console: Console, home: HostAccess, *, first: bool = False
) -> int:
    """From the target to the exit status; `first`: on the first of its hosts, as ssh does it."""
    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(wish.target, place, reach)
    hosts = hosts[:1] if first else hosts
    await confirm_foreign_hosts(hosts, TerminalPrompter(console, "herd exec", yes=wish.yes))
    names = label_hosts(hosts)
    id = new_command_id()
    about = LogInfo(
        id=id,
        kind=COMMAND,
        title=wish.title,
        target=wish.target,
        started=reach.clock.now(),
        places=tuple(map(log_place, hosts)),
    )
    stdin = needs_stdin(wish, console, terminal=first)
    order = CommandRequest(id=id, verb="run", words=wish.agent_arguments, stdin=stdin)
    into = wish.into or Path(f"herd-{id}")
    shown = create_printer(console, list(names.values()), wish.output, into, reach.clock)
    keeping = LogCapture(open_log_store(place), about, reach.clock)
    cast = MultiHostRun(order, names, reach.ways, shown, keeping, reach.clock)
    if stdin:
        cast.supply = StdinFanout(console, hosts)
    play = RunController(console, cast, shown, keeping, reach.clock)
    status = await play.run(wish.timeout_s)
    if wish.output == "dir" and console.said.loud >= 0:
        await console.print_notice(f"herd exec: what they said is in {into}")
    return status


def needs_stdin(wish: ExecRequest, console: Console, *, terminal: bool = False) -> bool:
    """Whether our input is passed on: a terminal's only where that is said."""
    if wish.stdin is not None:
        return wish.stdin
    if console.is_terminal(0):
        return terminal
    found = os.fstat(console.files[0])
    return not (stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev)
