"""Reads the output of a job's hosts in pages, from its end backwards, and what is added to it.

A page needs the last segment of each log, not all of it. Lines of several hosts are in the order of
their times. A line's id says where it is, so that a page can continue before or after it.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tpuherd.commands.find_logs import HostLog
from tpuherd.errors import InvalidInput
from tpuherd.store.log_store import MISSING, LogHost, LogStore
from tpuherd.targets import split_bid_name
from tpuherd.views.fold_output import Block, PlainMerger, split_lines
from tpuherd_host.agent.log_records import GAP, JUMP

LINES_MAX = 5000  #: of one page
TEXT_MAX = 16_384  #: characters of a line that are shown
LOGS_MAX = 256  #: of one page: the newest
OVERLAP_S = 10.0  #: how late a line may arrive, compared with those of other hosts
STREAMS = {1: "stdout", 2: "stderr"}
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")


class LineId(NamedTuple):
    """Where a line is; the fields are in sorting order."""

    at: float
    log: str  #: its attempt and host
    offset: int  #: the end of the record that ended it
    number: int  #: of the lines that ended in that record

    def __str__(self) -> str:
        return f"{self.at!r}~{self.log}~{self.offset}~{self.number}"


def parse_line_id(text: str) -> LineId:
    """Parse an id; InvalidInput if it is none."""
    at, _, rest = text.partition("~")
    log, *numbers = rest.rsplit("~", 2)
    try:
        offset, number = map(int, numbers)
        return LineId(float(at), log, offset, number)
    except ValueError:
        raise InvalidInput(f"{text[:80]!r} is not the id of a line") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class PageLine:
    """One line of a host, as a page shows it."""

    id: LineId
    slot: str
    worker: int
    stream: str  #: stdout, stderr, or agent
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPage:
    lines: Sequence[PageLine]
    more: bool  #: earlier lines exist


def read_log_page(
    logs: Sequence[HostLog], shelf: LogStore, lines: int, before: LineId | None
) -> LogPage:
    """Return the last lines before one, of all logs together."""
    wanted = min(lines, LINES_MAX)
    left = sorted(logs, key=end_time)
    found: list[PageLine] = []
    for _ in range(min(len(left), LOGS_MAX)):
        if len(found) > wanted and end_time(left[-1]) + OVERLAP_S < found[0].id.at:
            break  # this one and all others ended before the lines that were found
        log = left.pop()
        if before is None or log.about.started < before.at + OVERLAP_S:
            found += read_last_lines(log, shelf, wanted + 1, before)
            found = sorted(found, key=line_order)[-wanted - 1 :]
    return LogPage(lines=found[-wanted:], more=len(found) > wanted or bool(left))


def end_time(log: HostLog) -> float:
    return inf if log.about.ended is None else log.about.ended


def line_order(line: PageLine) -> LineId:
    return line.id


def read_last_lines(
    log: HostLog, shelf: LogStore, many: int, before: LineId | None
) -> Sequence[PageLine]:
    """Return the last lines of one log, reading back segment by segment until there are enough."""
    starts = shelf.segment_offsets(log.about.id, log.place)
    step = 1
    while True:
        known = starts[-step] if step < len(starts) else 0
        reader = LineReader(log)
        lines: deque[PageLine] = deque(maxlen=many)
        for line in reader.read_on(shelf, known):
            if before is None or line.id < before:
                lines.append(line)
        lines.extend(reader.rest_of_ended(before))
        if len(lines) == many or not known:
            return lines
        step *= 2


class LineReader:
    """Turns the records of one log into lines."""

    def __init__(self, log: HostLog) -> None:
        self.log = log
        self.offset = 0
        self._lines = PlainMerger()
        self._name = f"{log.about.id}/{log.place.folder_name}"
        named = split_bid_name(log.place.bid or log.place.node)
        self._slot = named.slot if named is not None else log.place.node
        parts = split_bid_name(log.place.node)
        self._worker = log.place.worker
        if parts is not None and parts.part is not None:  # counted through all its nodes
            self._worker = log.about.places.index(log.place)

    @property
    def worker(self) -> int:
        return self._worker

    def read_on(self, shelf: LogStore, known: int) -> Iterator[PageLine]:
        """Yield the lines that end after an offset, which is the end of a record."""
        self.offset = known
        for end, record in shelf.read_records(
            self.log.about.id, self.log.place, known, known=known
        ):
            self.offset = end
            lost = record.port in (GAP, JUMP)
            text = MISSING if lost else record.piece
            yield from self._split(self._lines.feed("", record.port, text, record.at))

    def rest_of_ended(self, before: LineId | None) -> list[PageLine]:
        """Return the last line if its command ended without a line feed."""
        if self.log.about.ended is None:
            return []
        rest = list(self._split(self._lines.end_host("", self.log.about.ended)))
        return [line for line in rest if before is None or line.id < before]

    def _split(self, blocks: Iterable[Block]) -> Iterator[PageLine]:
        number = 0
        for block in blocks:
            for text in split_lines(block.text):
                yield PageLine(
                    id=LineId(block.at, self._name, self.offset, number),
                    slot=self._slot,
                    worker=self._worker,
                    stream=STREAMS.get(block.port, "agent"),
                    text=plain_text(text),
                )
                number += 1


def plain_text(line: bytes) -> str:
    """A line without colours and other codes for terminals, and not longer than a page shows."""
    text = TERMINAL_CODES.sub("", line.decode(errors="replace").removesuffix("\n"))
    text = text.removesuffix("\r")
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


class LogTail:
    """Reads what is added to logs, in portions."""

    def __init__(self, shelf: LogStore, after: LineId | None) -> None:
        self._shelf = shelf
        self._after = after
        self._readers: dict[tuple[str, LogHost], LineReader] = {}

    def read_new(self, logs: Iterable[HostLog], most: int = LINES_MAX) -> list[PageLine]:
        """Return new lines of these logs, by time; more follow at the next call.

        Lines that are up to OVERLAP_S older than the line to begin after are repeated, because
        other hosts' lines may arrive later.
        """
        since = -inf if self._after is None else self._after.at - OVERLAP_S
        found: list[PageLine] = []
        for log in logs:
            reader = self._readers.get((log.about.id, log.place)) or self._begin(log)
            for line in reader.read_on(self._shelf, reader.offset):
                if line.id.at >= since and line.id != self._after:
                    found.append(line)
                if len(found) >= most:
                    break
        return sorted(found, key=line_order)

    def _begin(self, log: HostLog) -> LineReader:
        """Begin at the last segment, or at the end if no line is known to begin after."""
        key = (log.about.id, log.place)
        reader = self._readers[key] = LineReader(log)
        starts = self._shelf.segment_offsets(*key)
        if self._after is None:
            reader.offset = self._shelf.end_offset(*key)
        elif starts and log.about.started < self._after.at:
            reader.offset = starts[-1]
        return reader
