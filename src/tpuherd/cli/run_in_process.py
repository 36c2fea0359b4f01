"""Does an errand in this process: where no keeper can run, or for this once."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tpuherd.cli.parsed_command import Errand, perform
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.settings import project_access

if TYPE_CHECKING:  # it loads what is heavy, and who only reads goes nowhere
    from tpuherd.remote.resolve_hosts import Reach

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH)


class Here:
    """This process as a home: it keeps nothing beyond its end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def reach(self, console: Console) -> "tuple[project_access.Place, Reach]":
        from tpuherd.remote import open_remote

        place = project_access.place(console.environ, world=console.said.world)
        return place, await self._stack.enter_async_context(
            open_remote.reaching(place, WallClock())
        )

    def standing(self) -> Mapping[str, object] | None:
        return None

    def leave(self, *, now: bool) -> bool:
        return False


def do(errand: Errand, environ: Mapping[str, str], colour: bool | None) -> int:
    """Do it, and come back with its exit status."""
    return asyncio.run(done(errand, environ, colour))


async def done(errand: Errand, environ: Mapping[str, str], colour: bool | None) -> int:
    """The same within a loop."""
    console = Console((0, 1, 2), Path.cwd(), environ, colour=colour)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, console.hear, number)
    try:
        async with AsyncExitStack() as stack:
            status = await perform(errand, console, Here(stack))
            console.close()
            return status
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
