"""Where a command makes wishes: its desk, how it asks, and how it tells."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tpuherd import meant
from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.clock import WallClock
from tpuherd.desk import engines
from tpuherd.desk.desk import Desk
from tpuherd.ports import Unfit
from tpuherd.store.database import Database

if TYPE_CHECKING:
    from tpuherd.cloud.client import Cloud


class Asking:
    """The user at the terminal."""

    def __init__(self, console: Console, name: str, *, yes: bool) -> None:
        self.console = console
        self.name = name
        self.yes = yes  #: to all

    @property
    def environ(self) -> Mapping[str, str]:
        return self.console.environ

    async def tell(self, sentence: str) -> None:
        await self.console.tell(f"{self.name}: {sentence}")

    async def agree(self, question: str, details: str = "") -> bool:
        if self.yes:
            return True
        if details:
            await self.console.tell(details)
        if not self.console.terminal(0):
            raise Unfit(question, hint="without a terminal nobody can be asked: --yes says so")
        await self.tell(question)
        await self.console.flush()
        if await self.console.ask("Go on? [y/n]", {"y": "go on", "n": "leave it"}) == "y":
            return True
        await self.tell("nothing was changed")
        return False


@contextmanager
def desk(
    console: Console, doing: Home, name: str, *, yes: bool = False, begins: bool = True
) -> Iterator[Desk]:
    """Open for one command. When it is over an engine begins to fill what is wished."""
    place = meant.place(console.environ, world=console.said.world)
    clock = WallClock()

    async def cloud() -> "Cloud":
        _, reach = await doing.reach(console)
        return reach.cloud

    store = Database(place.store, clock.now())
    try:
        talk = Asking(console, name, yes=yes)
        yield Desk(place=place, store=store, clock=clock, talk=talk, cloud=cloud)
        if begins:
            engines.ensure(place, console.environ)
    finally:
        store.close()


async def say(console: Console, text: str) -> None:
    """Lines for stdout."""
    await console.say(f"{text}\n".encode(errors="replace"))


async def say_json(console: Console, content: Any) -> None:
    """For programs."""
    await say(console, json.dumps(content, indent=2, ensure_ascii=False, default=str))


def dollars(amount: float | None) -> str:
    """$1.23"""
    return "unknown" if amount is None else f"${amount:,.2f}"
