"""Where a command makes wishes: its desk, how it asks, and how it tells."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tpuherd.cli.ask_user import Asking
from tpuherd.cli.store_session import tell_notices
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.jobs import engine_control
from tpuherd.jobs.open_project import Desk
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.views.printable import json_text

if TYPE_CHECKING:
    from tpuherd.cloud.nodes_api import Cloud


@asynccontextmanager
async def desk(
    console: Console, doing: Home, name: str, *, yes: bool = False, begins: bool = True
) -> AsyncIterator[Desk]:
    """Open for one command. When it is over an engine begins to fill what is wished."""
    place = project_access.place(console.environ, world=console.said.world)
    clock = WallClock()

    async def cloud() -> "Cloud":
        _, reach = await doing.reach(console)
        return reach.cloud

    store = Database(place.store, clock.now())
    try:
        await tell_notices(console, place.store)
        talk = Asking(console, name, yes=yes)
        yield Desk(place=place, store=store, clock=clock, talk=talk, cloud=cloud)
        if begins:
            engine_control.ensure(place, console.environ)
    finally:
        store.close()


async def say(console: Console, text: str) -> None:
    """Lines for stdout."""
    await console.show(text)


async def say_json(console: Console, content: Any) -> None:
    """For programs."""
    await console.say(f"{json_text(content, indent=2)}\n".encode(errors="replace"))


def dollars(amount: float | None) -> str:
    """$1.23"""
    return "unknown" if amount is None else f"${amount:,.2f}"
