"""A terminal on a host that survives its connection and its window."""

import asyncio
import signal

from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.commands.command_types import (
    ExecRequest,
    confirm_foreign_hosts,
    label_hosts,
    new_command_id,
    parse_outcome,
    resolve_hosts,
)
from tpuherd.commands.console import Console
from tpuherd.commands.failure_table import failure_table
from tpuherd.commands.host_access import HostAccess
from tpuherd.commands.log_capture import LogCapture, cancel_tasks, open_log_store
from tpuherd.commands.multi_host_run import CommandRequest, ReconnectTimer
from tpuherd.errors import HerdError, InvalidInput, NotReached
from tpuherd.exit_status import SIGNALLED, TRANSPORT
from tpuherd.ports import Host, Link, RpcRequest
from tpuherd.remote.agent_channel import Call
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.store.log_store import COMMAND, LogInfo, log_host
from tpuherd.targets import fold_names
from tpuherd_host.agent.frames import STDIN

LEAVE = b"~."  #: after a newline: detach, as in ssh


async def run_terminal(
    request: ExecRequest, console: Console, home: HostAccess, *, first: bool = False
) -> int:
    """Run it on the only host, or on the first one with `first`."""
    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(request.target, place, reach)
    names = label_hosts(hosts)
    if len(hosts) > 1 and not first:
        raise InvalidInput(f"a terminal needs one host, not {fold_names(names.values())}")
    if len(hosts) > 1 and console.said.loud >= 0:
        await console.print_notice(f"{names[hosts[0]]}, the first of {len(hosts)} hosts")
    name = "herd ssh" if first else "herd exec"
    await confirm_foreign_hosts(hosts[:1], TerminalPrompter(console, name, yes=request.yes))
    rows, columns = console.terminal_size()
    term = console.environ.get("TERM") or "xterm"
    terminal = {"rows": rows, "columns": columns, "term": term}
    order = CommandRequest(
        id=new_command_id(), verb="run", in_code=request.in_code,
        words={**request.agent_arguments, "terminal": terminal},
    )  # fmt: skip
    about = LogInfo(
        id=order.id, kind=COMMAND, title=request.title, target=request.target,
        started=reach.clock.now(), places=(log_host(hosts[0]),),
    )  # fmt: skip
    keeping = LogCapture(
        open_log_store(place), about, reach.clock
    )  # without its output: only that it exists
    keeping.record_start()
    status = await TerminalSession(console, reach, hosts[0], order).run()
    keeping.record_end(status)
    return status


class UserLeft(Exception):
    """The user detached. The argument is the exit status."""


class TerminalSession:
    def __init__(
        self, console: Console, reach: RemoteSession, host: Host, order: CommandRequest
    ) -> None:
        self._console = console
        self._reach = reach
        self._host = host
        self._order = order
        self._label = label_hosts([host])[host]
        self._offset = 0
        self._begun = False
        self._line_begins = True
        self._typed = b""  #: the part of LEAVE typed so far

    async def run(self) -> int:
        """Return its exit status, or that of detaching."""
        timer = ReconnectTimer(self._reach.clock)
        while True:
            before = self._offset
            try:
                await self._console.flush()  # before raw mode, which needs \r\n
                with self._console.raw_mode():
                    status = await self._run_connected()
                    await self._console.flush()
                return status
            except UserLeft as left:
                return int(left.args[0])
            except NotReached as error:
                if self._begun and timer.note_loss(progress=self._offset > before):
                    await self._console.print_notice(
                        f"\n{self._label}: {error.sentence}; reconnecting"
                    )
                if not self._begun or timer.expired:
                    await self._console.print_notice(f"herd: {self._label}: {error.sentence}")
                    return TRANSPORT
            await timer.pause()

    async def _run_connected(self) -> int:
        link = await self._reach.pool.get_link(self._host)
        async with link.open_stream(self._order.verb_from(self._offset, self._host)) as call:
            self._begun = True
            if self._offset or self._order.verb == "attach":
                await self._send_size(link)
            beside = [
                asyncio.create_task(self._send_input(call)),
                asyncio.create_task(self._handle_signals(link)),
            ]
            showing = asyncio.create_task(self._show_output(call))
            try:
                tasks = [showing, *beside]
                while not showing.done():
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done - {showing}:
                        task.result()  # raises UserLeft
                        tasks.remove(task)
                showing.result()
            finally:
                await cancel_tasks([showing, *beside])
            outcome = parse_outcome(self._label, await call.reply())
            for line in failure_table([outcome]):
                await self._console.print_notice(line)
            return outcome.status

    async def _show_output(self, call: Call) -> None:
        while (got := await call.read()) is not None:
            self._offset += len(got[1])
            await self._console.write(got[1])

    async def _send_input(self, call: Call) -> None:
        """Send what the user types, except the escape to detach."""
        try:
            while piece := await self._console.read():
                if self._console.is_terminal(0):
                    piece = await self._strip_escape(piece)
                await call.write(STDIN, piece)
            await call.send_eof(STDIN)
        except NotReached:
            pass  # the caller gets the error, too

    async def _strip_escape(self, piece: bytes) -> bytes:
        """Without the sign to leave, which is taken out of what is typed."""
        passed = bytearray()
        for key in piece:
            typed = self._typed + bytes([key])
            if self._line_begins and LEAVE.startswith(typed):
                self._typed = typed
                if typed == LEAVE:
                    await self._leave_running(0)
                continue
            passed += typed
            self._typed = b""
            self._line_begins = key in b"\r\n"
        return bytes(passed)

    async def _handle_signals(self, link: Link) -> None:
        while True:
            number = await self._console.signals.get()
            if number == signal.SIGWINCH:
                await self._send_size(link)
            elif number == signal.SIGHUP:
                raise UserLeft(SIGNALLED + number)
            elif number in (signal.SIGINT, signal.SIGTERM):
                asked = {"id": self._order.id, "grace_s": 2.0, "why": "its user stopped it"}
                await link.call(RpcRequest(name="stop", arguments=asked))
                raise UserLeft(SIGNALLED + number)

    async def _send_size(self, link: Link) -> None:
        rows, columns = self._console.terminal_size()
        asked = {"id": self._order.id, "rows": rows, "columns": columns}
        try:
            await link.call(RpcRequest(name="resize", arguments=asked))
        except HerdError:
            pass  # it has just ended, or the caller gets the error

    async def _leave_running(self, status: int) -> None:
        await self._console.write(b"\r\n", 2)
        await self._console.print_notice(
            f"it keeps running; herd exec --attach {self._order.id} shows it"
        )
        raise UserLeft(status)
