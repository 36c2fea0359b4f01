"""`herd top`: a live screen of jobs, hosts and chips in the terminal."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import InvalidInput
from tpuherd.exit_status import SIGNALLED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

LOOK_S = 1.0  #: how often it is looked whether the terminal is still there


@click.command()
def top() -> ParsedCommand:
    """Watch jobs, slots, hosts and chips in the terminal, live.

    Arrow keys move, Enter opens a row, l shows its logs, w says why; ? shows all keys. It needs
    the package textual: pip install 'tpuherd[top]'.
    """
    return make_parsed_command("herd top", run_top, attentive=True)


async def run_top(console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.settings import project_access

    if not (console.is_terminal(0) and console.is_terminal(1)):
        raise InvalidInput(
            "herd top needs a terminal", hint="in scripts, use the JSON of herd status"
        )
    try:
        from tpuherd.top.top_screen import TopScreen
    except ModuleNotFoundError as error:
        if error.name != "textual":
            raise
        raise InvalidInput(
            "herd top needs the package textual", hint="pip install 'tpuherd[top]'"
        ) from None
    from tpuherd.top.top_feed import TopFeed

    async with open_store_session(console) as here:
        clock = here.clock
    feed = TopFeed(project_access.resolve_scope(console.environ, world=console.said.world), clock)
    import asyncio

    screen = TopScreen(feed, clock, partial(run_herd, console))
    ending = asyncio.ensure_future(await_end(console))
    ending.add_done_callback(lambda task: None if task.cancelled() else screen.exit(task.result()))
    try:
        return await screen.run_async() or 0
    finally:
        ending.cancel()
        await feed.close()


async def await_end(console: "Console") -> int:
    """Return the exit status once a signal ends the screen; without its terminal it ends at once,
    even where the hang-up is ignored: nothing can be drawn or read any more.
    """
    import asyncio

    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, console.handle_signal, signal.SIGHUP
    )
    while os.isatty(0):
        with suppress(TimeoutError):
            number = await asyncio.wait_for(console.signals.get(), LOOK_S)
            if number == signal.SIGTERM:
                return SIGNALLED + number
            if number == signal.SIGHUP:
                break
    os._exit(SIGNALLED + signal.SIGHUP)


async def run_herd(console: "Console", words: Sequence[str]) -> str:
    """Run another herd command; `ssh` has the terminal, of others return the last line."""
    import asyncio
    import subprocess
    import sys

    line = [sys.executable, "-P", "-m", "tpuherd.launcher"]
    line += ["--world", str(console.said.world)] if console.said.world else []
    if words[0] == "ssh":
        await asyncio.to_thread(subprocess.run, [*line, *words], env=dict(console.environ))
        return ""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *line, *words, env=dict(console.environ), stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    lines = said.decode(errors="replace").split("\n")
    return next((one for one in reversed(lines) if one.strip()), "done")
