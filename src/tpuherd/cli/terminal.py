"""A terminal on a host, that outlives its connection, its window and this machine."""

import asyncio
import signal

from tpuherd.cli.ask_user import Asking
from tpuherd.commands.command_types import (
    Wish,
    confirm_foreign_hosts,
    ended,
    hosts_of,
    named,
    new_id,
    place_of,
)
from tpuherd.commands.console import Console
from tpuherd.commands.failure_table import report
from tpuherd.commands.host_access import Home
from tpuherd.commands.log_capture import Keeping, cancelled, shelf
from tpuherd.commands.multi_host_run import PATIENCE_S, PAUSE_S, PAUSE_S_MAX, Order
from tpuherd.errors import HerdError, NotReached, Unfit
from tpuherd.exit_status import SIGNALLED, TRANSPORT
from tpuherd.ports import Host, Link, Verb
from tpuherd.remote.agent_channel import Call
from tpuherd.remote.resolve_hosts import Reach
from tpuherd.store.log_store import COMMAND, About
from tpuherd.targets import fold
from tpuherd_host.agent.frames import STDIN

LEAVE = b"~."  #: after a line's end: leave it alone, as ssh has it


async def run(wish: Wish, console: Console, home: Home, *, first: bool = False) -> int:
    """On the one host that is meant, or the first of them."""
    place, reach = await home.reach(console)
    hosts = await hosts_of(wish.target, place, reach)
    names = named(hosts)
    if len(hosts) > 1 and not first:
        raise Unfit(f"a terminal has room for one host, not {fold(names.values())}")
    if len(hosts) > 1 and console.said.loud >= 0:
        await console.tell(f"{names[hosts[0]]}, the first of {len(hosts)} hosts")
    name = "herd ssh" if first else "herd exec"
    await confirm_foreign_hosts(hosts[:1], Asking(console, name, yes=wish.yes))
    rows, columns = console.size()
    term = console.environ.get("TERM") or "xterm"
    terminal = {"rows": rows, "columns": columns, "term": term}
    order = Order(id=new_id(), verb="run", words={**wish.words, "terminal": terminal})
    about = About(
        id=order.id, kind=COMMAND, title=wish.title, target=wish.target,
        started=reach.clock.now(), places=(place_of(hosts[0]),),
    )  # fmt: skip
    keeping = Keeping(shelf(place), about, reach.clock)  # not what it says: only that it is there
    keeping.note()
    status = await Session(console, reach, hosts[0], order).through()
    keeping.end(status)
    return status


class Left(Exception):
    """The user leaves; it goes on. The exit status is the argument."""


class Session:
    """Holds one end of it."""

    def __init__(self, console: Console, reach: Reach, host: Host, order: Order) -> None:
        self._console = console
        self._reach = reach
        self._host = host
        self._order = order
        self._label = named([host])[host]
        self._offset = 0
        self._begun = False
        self._line_begins = True
        self._typed = b""  #: a part of LEAVE

    async def through(self) -> int:
        """Until it ends, or is left."""
        clock = self._reach.clock
        lost_at: float | None = None
        pause_s = PAUSE_S
        while True:
            before = self._offset
            try:
                await self._console.flush()  # raw, the lines before would end without a return
                with self._console.raw():
                    status = await self._connected()
                    await self._console.flush()
                return status
            except Left as left:
                return int(left.args[0])
            except NotReached as error:
                now = clock.now()
                if self._begun and (lost_at is None or self._offset > before):
                    lost_at, pause_s = now, PAUSE_S
                    await self._console.tell(f"\n{self._label}: {error.sentence}; looking for it")
                if lost_at is None or now - lost_at > PATIENCE_S:
                    await self._console.tell(f"herd: {self._label}: {error.sentence}")
                    return TRANSPORT
            await clock.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _connected(self) -> int:
        """By one link, until it ends or breaks."""
        link = await self._reach.ways.link(self._host)
        async with link.stream(self._order.at(self._offset)) as call:
            self._begun = True
            if self._offset or self._order.verb == "attach":
                await self._resize(link)
            beside = [asyncio.create_task(self._type(call)), asyncio.create_task(self._heed(link))]
            showing = asyncio.create_task(self._show(call))
            try:
                tasks = [showing, *beside]
                while not showing.done():
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done - {showing}:
                        task.result()  # somebody leaves
                        tasks.remove(task)
                showing.result()
            finally:
                await cancelled([showing, *beside])
            outcome = ended(self._label, await call.reply())
            for line in report([outcome]):
                await self._console.tell(line)
            return outcome.status

    async def _show(self, call: Call) -> None:
        while (got := await call.read()) is not None:
            self._offset += len(got[1])
            await self._console.say(got[1])

    async def _type(self, call: Call) -> None:
        """What the user types goes there, but for the sign to leave."""
        try:
            while piece := await self._console.read():
                if self._console.terminal(0):
                    piece = await self._watched(piece)
                await call.write(STDIN, piece)
            await call.end(STDIN)
        except NotReached:
            pass  # who shows it hears of it, too

    async def _watched(self, piece: bytes) -> bytes:
        """Without the sign to leave, which is taken out of what is typed."""
        passed = bytearray()
        for key in piece:
            typed = self._typed + bytes([key])
            if self._line_begins and LEAVE.startswith(typed):
                self._typed = typed
                if typed == LEAVE:
                    await self._leave(0)
                continue
            passed += typed
            self._typed = b""
            self._line_begins = key in b"\r\n"
        return bytes(passed)

    async def _heed(self, link: Link) -> None:
        while True:
            number = await self._console.signals.get()
            if number == signal.SIGWINCH:
                await self._resize(link)
            elif number == signal.SIGHUP:
                raise Left(SIGNALLED + number)
            elif number in (signal.SIGINT, signal.SIGTERM):
                asked = {"id": self._order.id, "grace_s": 2.0, "why": "its user stopped it"}
                await link.call(Verb(name="stop", arguments=asked))
                raise Left(SIGNALLED + number)

    async def _resize(self, link: Link) -> None:
        rows, columns = self._console.size()
        asked = {"id": self._order.id, "rows": rows, "columns": columns}
        try:
            await link.call(Verb(name="resize", arguments=asked))
        except HerdError:
            pass  # it has just ended, or who shows it hears of it

    async def _leave(self, status: int) -> None:
        await self._console.say(b"\r\n", 2)
        await self._console.tell(f"it goes on; herd exec --attach {self._order.id} shows it")
        raise Left(status)
