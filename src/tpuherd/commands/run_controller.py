"""Handles the user while a command runs: Ctrl+C, detaching, the timeout."""

import asyncio
import signal
from collections.abc import Coroutine

from tpuherd.clock import Clock
from tpuherd.commands.command_types import worst_status
from tpuherd.commands.console import Console
from tpuherd.commands.failure_table import failure_table
from tpuherd.commands.log_capture import LogCapture, cancel_tasks
from tpuherd.commands.multi_host_run import MultiHostRun
from tpuherd.commands.output import OutputPrinter
from tpuherd.exit_status import BROKEN_PIPE, SIGNALLED, TIMED_OUT

GRACE_S = 10.0
ANSWERS = {"d": "detach", "s": "stop"}
NOT_KEPT = "herd exec: some output is missing in herd logs: this machine's disk can't be written"
QUESTION = "\nIt runs on the hosts. [d]etach and keep it running, or [s]top it?"


class RunController:
    """Accompanies a MultiHostRun until it ends or the user leaves."""

    def __init__(
        self,
        console: Console,
        cast: MultiHostRun,
        shown: OutputPrinter,
        keeping: LogCapture,
        clock: Clock,
    ) -> None:
        self._console = console
        self._cast = cast
        self._screen = shown
        self._keeping = keeping
        self._clock = clock
        self._status: int | None = None  #: our exit status, whatever the hosts return
        self._left: int | None = None  #: our exit status if we end before the hosts
        self._playing: asyncio.Task[None] | None = None
        self._stops: set[asyncio.Task[None]] = set()

    async def run(self, timeout_s: float | None) -> int:
        """Run to the end and return the exit status."""
        async with asyncio.TaskGroup() as group:
            self._playing = group.create_task(self._cast.run())
            self._cast.when_unread = self._on_output_closed
            beside: list[Coroutine[None, None, None]] = [
                self._handle_signals(), self._screen.print_when_due(),
                self._keeping.flush_regularly(), self._cast.watch_silent_hosts(),
            ]  # fmt: skip
            if timeout_s is not None:
                beside.append(self._enforce_timeout(timeout_s))
            if self._cast.supply is not None:
                beside.append(self._cast.supply.read_to_end())
            tasks = [group.create_task(one) for one in beside]
            await asyncio.wait([self._playing])
            await cancel_tasks([*tasks, *self._stops])
        return await self._finish_run()

    async def _finish_run(self) -> int:
        if self._left is not None:
            self._keeping.record_end(self._left or None)
            return self._left
        outcomes = [self._cast.outcomes[host] for host in self._cast.hosts]
        self._keeping.record_end(worst_status(outcomes))
        if self._console.said.loud >= 0:
            if self._keeping.lost:
                await self._console.print_notice(NOT_KEPT)
            for line in failure_table(outcomes):
                await self._console.print_notice(line)
        return worst_status(outcomes) if self._status is None else self._status

    async def _handle_signals(self) -> None:
        while True:
            number = await self._console.signals.get()
            if number == signal.SIGTERM:
                self._stop(SIGNALLED + number)
            elif number == signal.SIGHUP:  # it keeps running, and must be found again
                self._keeping.record_start()
            elif number == signal.SIGINT:
                await self._handle_interrupt()

    async def _handle_interrupt(self) -> None:
        """The first Ctrl+C asks, the second stops, the third kills."""
        number = int(signal.SIGINT)
        if self._status is not None or not self._may_ask():
            self._stop(SIGNALLED + number)
            return
        asking = asyncio.create_task(self._console.ask_question(QUESTION, ANSWERS))
        again = asyncio.create_task(self._console.signals.get())
        assert self._playing is not None
        await asyncio.wait((asking, again, self._playing), return_when=asyncio.FIRST_COMPLETED)
        answer = asking.result() if asking.done() else "s"
        over = self._playing.done()
        await cancel_tasks((asking, again))
        if answer == "d" and not over:
            await self._leave_running()
        elif answer == "s" and not over:
            self._stop(SIGNALLED + number)

    def _may_ask(self) -> bool:
        """Whether the user can be asked."""
        console = self._console
        return console.is_terminal(0) and console.is_terminal(2) and self._cast.supply is None

    async def _leave_running(self) -> None:
        """Detach; the daemon continues to store the output."""
        id = self._cast.order.id
        sentence = f"it keeps running; herd exec --attach {id} shows it, --kill {id} stops it"
        await self._console.print_notice(sentence)
        await self._console.flush()
        self._keeping.record_start()
        self._keeping.flush()
        if not self._console.release_user(0):
            self._abandon_run(0)

    def _abandon_run(self, status: int) -> None:
        self._left = status
        assert self._playing is not None
        self._playing.cancel()

    def _stop(self, status: int) -> "asyncio.Task[None]":
        """Send TERM on all hosts; the second time KILL."""
        grace_s = GRACE_S if self._status is None else 0.0
        self._status = status if self._status is None else self._status
        task = asyncio.create_task(self._cast.stop(grace_s))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)
        return task

    def _on_output_closed(self) -> None:
        """Stop the command when its output has no reader, like the writer of a pipe."""
        self._console.discard_output()
        if self._status is None:
            self._stop(BROKEN_PIPE).add_done_callback(lambda _: self._abandon_run(BROKEN_PIPE))

    async def _enforce_timeout(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if self._status is None:
            await self._console.print_notice(f"herd exec: stopped after {seconds:g} s")
            self._stop(TIMED_OUT)
