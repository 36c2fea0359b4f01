"""Opens a server of a host in the browser, until the user leaves."""

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.cli.open_browser import has_browser, open_browser
from tpuherd.commands.command_types import confirm_foreign_hosts, label_hosts
from tpuherd.commands.forward_port import LOOPBACK, FirstHost, PortForward
from tpuherd.commands.open_program import find_folder
from tpuherd.commands.open_server import OpenServer, ServedTarget, ServerOrder
from tpuherd.errors import InvalidInput
from tpuherd.exit_status import SIGNALLED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

#: Paths of the pages to open, with a place for the token.
PAGES = {"jupyter": "/lab?token={token}", "tensorboard": "/"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """What the user said."""

    program: str
    target: str
    folder: str
    port: int | None
    no_browser: bool
    stop: bool
    yes: bool


async def run_open_server(options: ServerOptions, console: "Console", home: "HostAccess") -> int:
    name = f"herd open {options.program}"
    place, reach = await home.open_remote(console)
    first = FirstHost(target=options.target, place=place, reach=reach)
    host = await first.connect()
    await confirm_foreign_hosts([host], TerminalPrompter(console, name, yes=options.yes))
    label = label_hosts([host])[host]
    folder = options.folder
    if "://" not in folder and not options.stop:
        folder, warning = await find_folder(await reach.pool.get_link(host), folder, host)
        if warning:
            await console.print_notice(f"{name}: {warning}")
    order = ServerOrder(program=options.program, folder=folder)
    served = ServedTarget(order=order, first=first)
    if options.stop:
        found = await served.stop()
        what = f"Stopped {order.title}" if found else f"{order.title} does not run"
        await console.print_text(f"{what} on {label}")
        return 0
    return await ServerSession(options, served, console).run(label)


class ServerSession:
    """One `herd open`: a port here that leads to the server, until the user leaves."""

    def __init__(self, options: ServerOptions, served: ServedTarget, console: "Console") -> None:
        self._options = options
        self._served = served
        self._console = console
        self._browsing: asyncio.Task[None] | None = None

    async def run(self, label: str) -> int:
        """Return the exit status: 0 after Ctrl+C."""
        opening = asyncio.ensure_future(self._served.open())
        leaving = asyncio.ensure_future(self._wait_for_signal())
        try:
            await asyncio.wait((opening, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return SIGNALLED + leaving.result()
            server = opening.result()
            listener = await self._listen(server)
            try:
                await self._announce(server, label, listener.sockets[0].getsockname()[1])
                return await self._leave(server, label, await leaving)
            finally:
                listener.close()
        finally:
            tasks = [one for one in (opening, leaving, self._browsing) if one is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, server: OpenServer) -> asyncio.Server:
        """Listen on the port that the user chose, else on the usual one, else on a free one."""
        forwarding = PortForward(
            title=self._served.order.title, open_tunnel=self._served.open_tunnel, tell=self._tell
        )
        if self._options.port is not None:
            return await forwarding.listen(self._options.port)
        try:
            return await forwarding.listen(server.port)
        except InvalidInput:
            return await forwarding.listen(0)

    async def _announce(self, server: OpenServer, label: str, port: int) -> None:
        page = PAGES[self._options.program].format(token=quote(server.token, safe=""))
        url = f"http://{LOOPBACK}:{port}{page}"
        wanted = self._served.order.folder
        if not server.started and server.folder != wanted:
            await self._tell(
                f"a server for {server.folder} runs already; for {wanted}, stop it first (--stop)"
            )
        await self._console.print_text(f"{url} is {self._options.program} on {label}")
        await self._tell(
            "Ctrl+C stops it; if you close this window, it keeps running"
            if server.started
            else "it was running already: Ctrl+C leaves it so, --stop stops it"
        )
        await self._console.flush()
        if not self._options.no_browser and has_browser(self._console.environ):
            self._browsing = asyncio.create_task(open_browser(url))

    async def _wait_for_signal(self) -> int:
        while True:
            number = await self._console.signals.get()
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                return number

    async def _leave(self, server: OpenServer, label: str, number: int) -> int:
        """Stop the server if Ctrl+C ends what this command has started."""
        if number != signal.SIGINT:
            return SIGNALLED + number
        if server.started:
            await self._served.stop()
            await self._tell(f"stopped {self._served.order.title} on {label}")
        return 0

    async def _tell(self, sentence: str) -> None:
        await self._console.print_notice(f"herd open {self._options.program}: {sentence}")
        await self._console.flush()
