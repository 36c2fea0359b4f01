"""Runs a parsed command in this process, without a daemon."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tpuherd.cli.parsed_command import ParsedCommand, run_parsed_command
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.settings import project_access

if TYPE_CHECKING:  # slow to load, and not needed by commands that only read
    from tpuherd.remote.resolve_hosts import RemoteSession

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH)


class InProcessAccess:
    """Opens connections for one command and closes them at its end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def open_remote(
        self, console: Console
    ) -> "tuple[project_access.ProjectAccess, RemoteSession]":
        from tpuherd.remote import open_remote

        place = project_access.resolve_access(console.environ, world=console.said.world)
        return place, await self._stack.enter_async_context(
            open_remote.open_remote_session(place, WallClock())
        )

    def daemon_status(self) -> Mapping[str, object] | None:
        return None

    def stop_daemon(self, *, now: bool) -> bool:
        return False


def run_in_process(command: ParsedCommand, environ: Mapping[str, str], colour: bool | None) -> int:
    return asyncio.run(run_with_console(command, environ, colour))


async def run_with_console(
    command: ParsedCommand, environ: Mapping[str, str], colour: bool | None
) -> int:
    console = Console((0, 1, 2), Path.cwd(), environ, colour=colour)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, console.handle_signal, number)
    try:
        async with AsyncExitStack() as stack:
            status = await run_parsed_command(command, console, InProcessAccess(stack))
            console.close()
            return status
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
