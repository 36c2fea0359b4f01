"""`herd run --follow`: shows events and output of a job until it ends."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from heapq import merge

from tpuherd.cli.job_session import open_job_session
from tpuherd.cli.logs import log_folder
from tpuherd.clock import Clock, WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.find_logs import HostLog, LogQuery, find_logs
from tpuherd.commands.host_access import HostAccess
from tpuherd.commands.job_outputs import print_place
from tpuherd.commands.output import BlockFormatter, name_prefixer
from tpuherd.exit_status import SIGNALLED
from tpuherd.jobs.job_queries import job_ending, load_scene
from tpuherd.jobs.ledger_cache import load_ledger, read_new_events
from tpuherd.jobs.open_project import Session
from tpuherd.store.log_store import LogCursor, LogHost, LogStore
from tpuherd.views.fold_output import Block, FoldingMerger

STDOUT, STDERR = 1, 2
LOOK_S = 0.3
LAST_WORDS_S = 3.0  #: how long the last output may arrive after the end
DETACHING = (signal.SIGINT, signal.SIGHUP)


async def follow_job(job: str, console: Console, home: HostAccess, *, by: str = "herd run") -> int:
    """Return the job's exit status; Ctrl+C only stops the display."""
    async with open_job_session(console, home, by) as here:
        told = asyncio.ensure_future(print_events(job, here, console))
        log = LogQuery(target=job)
        logs = asyncio.ensure_future(print_logs(log, here.get_job(job).changed_at, console))
        ends = asyncio.ensure_future(wait_for_signal(console))
        try:
            await asyncio.wait((told, ends), return_when=asyncio.FIRST_COMPLETED)
            if not told.done():
                number = ends.result()
                again = f"`herd logs {job} -f` shows it again"
                if by == "herd up":
                    again = f"`herd wait {job}` waits until it is ready"
                await console.print_notice(f"{by}: {job} keeps running; {again}")
                return 0 if number in DETACHING else SIGNALLED + number
            await asyncio.wait((logs,), timeout=LAST_WORDS_S)
            await print_place(job, by, console)
            return told.result()
        finally:
            for task in (told, logs, ends):
                task.cancel()
            await asyncio.gather(told, logs, ends, return_exceptions=True)


async def print_logs(look: LogQuery, since: float, console: Console) -> None:
    """Print the output of the job's hosts from `since` on, until cancelled."""
    clock, shelf = WallClock(), LogStore(log_folder(console))
    page = FoldedLogPrinter(shelf, console, clock, since=since)
    try:
        while True:
            await page.print_new(find_logs(look, shelf))
            await console.flush()
            await clock.sleep(LOOK_S)
    finally:
        await page.close()


async def print_events(job: str, here: Session, console: Console) -> int:
    """Print the reason of each event; return the job's exit status when it ends."""
    seen = max(
        (number for number, _ in here.store.read_events(job=job, limit=1, newest=True)), default=0
    )
    kept = load_ledger(here.store)
    while True:
        for number, event in here.store.read_events(after=seen, job=job):
            seen = number
            why = event.facts.get("why")
            if why:
                await console.print_notice(f"{event.slot or job}: {why}")
        read_new_events(kept, here.store)
        ended = job_ending(load_scene(here.store, here.clock.now(), kept), job)
        if ended is not None:
            return ended[0]
        await here.clock.sleep(LOOK_S)


async def wait_for_signal(console: Console) -> int:
    while True:
        number = await console.signals.get()
        if number in (*DETACHING, signal.SIGTERM):
            return number


class FoldedLogPrinter:
    """Prints new lines; each waits a moment for hosts that write the same."""

    def __init__(self, shelf: LogStore, console: Console, clock: Clock, *, since: float) -> None:
        self._console = console
        self._clock = clock
        self._cursor = LogCursor(shelf, since)
        self._fold = FoldingMerger(())
        self._show: BlockFormatter = name_prefixer(console)
        self._ended: set[tuple[str, LogHost]] = set()

    async def print_new(self, logs: Sequence[HostLog]) -> None:
        """Print new lines, except those that wait for other hosts."""
        new = [log for log in logs if (log.about.id, log.place) not in self._ended]
        for log in new:
            self._fold.add_host(log.label)
        now = self._clock.now()  # one time for all, so that lines that came together are compared
        pieces = merge(*(self._new_pieces(log, at) for at, log in enumerate(new)))
        for _, number, port, text in pieces:
            out = STDOUT if port == STDOUT else STDERR
            await self._print_blocks(self._fold.feed(new[number].label, out, text, now))
        for log in new:
            if log.about.ended is not None:
                self._ended.add((log.about.id, log.place))
                await self._print_blocks(self._fold.end_host(log.label, now))
        await self._print_blocks(self._fold.due_blocks(self._clock.now()))

    async def close(self) -> None:
        """Print the lines that still wait."""
        await self._print_blocks(self._fold.close(self._clock.now()))

    def _new_pieces(self, log: HostLog, number: int) -> Iterator[tuple[float, int, int, bytes]]:
        for at, port, text in self._cursor.read_new(log.about.id, log.place):
            yield at, number, port, text

    async def _print_blocks(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            await self._console.write(self._show(block))
