"""`herd exec TARGET -- COMMAND`: run it on all hosts, and tell how it went."""

import os
import stat
from pathlib import Path

from tpuherd.cli.ask_user import Asking
from tpuherd.commands.command_types import (
    Wish,
    confirm_foreign_hosts,
    hosts_of,
    named,
    new_id,
    place_of,
)
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.commands.log_capture import Keeping, shelf
from tpuherd.commands.multi_host_run import Cast, Order
from tpuherd.commands.output import screen
from tpuherd.commands.run_controller import Play
from tpuherd.commands.stdin_fanout import Supply
from tpuherd.store.log_store import COMMAND, About


async def run(wish: Wish, console: Console, home: Home, *, first: bool = False) -> int:
    """From the target to the exit status; `first`: on the first of its hosts, as ssh does it."""
    place, reach = await home.reach(console)
    hosts = await hosts_of(wish.target, place, reach)
    hosts = hosts[:1] if first else hosts
    await confirm_foreign_hosts(hosts, Asking(console, "herd exec", yes=wish.yes))
    names = named(hosts)
    id = new_id()
    about = About(
        id=id,
        kind=COMMAND,
        title=wish.title,
        target=wish.target,
        started=reach.clock.now(),
        places=tuple(map(place_of, hosts)),
    )
    stdin = takes_input(wish, console, terminal=first)
    order = Order(id=id, verb="run", words=wish.words, stdin=stdin)
    into = wish.into or Path(f"herd-{id}")
    shown = screen(console, list(names.values()), wish.output, into, reach.clock)
    keeping = Keeping(shelf(place), about, reach.clock)
    cast = Cast(order, names, reach.ways, shown, keeping, reach.clock)
    if stdin:
        cast.supply = Supply(console, hosts)
    play = Play(console, cast, shown, keeping, reach.clock)
    status = await play.through(wish.timeout_s)
    if wish.output == "dir" and console.said.loud >= 0:
        await console.tell(f"herd exec: what they said is in {into}")
    return status


def takes_input(wish: Wish, console: Console, *, terminal: bool = False) -> bool:
    """Whether our input is passed on: a terminal's only where that is said."""
    if wish.stdin is not None:
        return wish.stdin
    if console.terminal(0):
        return terminal
    found = os.fstat(console.files[0])
    return not (stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev)
