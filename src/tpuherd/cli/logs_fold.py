"""Prints the logs of a job as `herd exec` prints hosts: lines that several write stand once."""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING

from tpuherd.clock import Clock
from tpuherd.commands.console import Console
from tpuherd.commands.output import BlockFormatter, name_prefixer
from tpuherd.store.log_store import LogHost, LogStore
from tpuherd.views.fold_output import Block, FoldingMerger
from tpuherd_host.agent.records import GAP, JUMP, Record

if TYPE_CHECKING:
    from tpuherd.commands.find_logs import HostLog

STDOUT, STDERR = 1, 2
MISSING = b"[output is missing here]\n"


class FoldedLogPrinter:
    """Prints what has not been printed yet; a line waits a moment for hosts that write the same."""

    def __init__(self, shelf: LogStore, console: Console, clock: Clock, *, since: float) -> None:
        self._shelf = shelf
        self._console = console
        self._clock = clock
        self._since = since
        self._fold = FoldingMerger(())
        self._show: BlockFormatter = name_prefixer(console)
        self._offsets: dict[tuple[str, LogHost], int] = {}
        self._ended: set[tuple[str, LogHost]] = set()

    async def print_new(self, logs: Sequence["HostLog"]) -> None:
        """All lines of these that are new, but those that wait for other hosts."""
        new = [log for log in logs if (log.about.id, log.place) not in self._ended]
        for log in new:
            self._fold.add_host(log.label)
        now = self._clock.now()  # one for all: what came together is compared together
        for _, number, record in merge(
            *(self._new_records(log, at) for at, log in enumerate(new)), key=itemgetter(0, 1)
        ):
            text = MISSING if record.port in (GAP, JUMP) else record.piece
            port = STDOUT if record.port == STDOUT else STDERR
            await self._print_blocks(self._fold.feed(new[number].label, port, text, now))
        for log in new:
            if log.about.ended is not None:
                self._ended.add((log.about.id, log.place))
                await self._print_blocks(self._fold.end_host(log.label, now))
        await self._print_blocks(self._fold.due_blocks(self._clock.now()))

    async def close(self) -> None:
        """Print what waits."""
        await self._print_blocks(self._fold.close(self._clock.now()))

    def _new_records(self, log: "HostLog", number: int) -> Iterator[tuple[float, int, Record]]:
        """What came to a log since it was last looked at."""
        key = (log.about.id, log.place)
        start = self._offsets.get(key, 0)
        for offset, record in self._shelf.read_records(log.about.id, log.place, start):
            self._offsets[key] = offset
            if record.at >= self._since:
                yield record.at, number, record

    async def _print_blocks(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            await self._console.write(self._show(block))
