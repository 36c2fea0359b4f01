"""Fold the output of many hosts into one text: equal lines once, each host's order kept.

`feed`, `end` and `due` return the blocks to show now; the caller calls `due` again at `wake_at`.
`prefixed` and `as_json` render a block.
"""

import base64
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from tpuherd.targets import fold_names, natural_key
from tpuherd.views.printable import json_text

WINDOW_S = 0.2  #: how long a line waits for the same line of other hosts
REDRAW_S = 1.0  #: how often a line that is being overwritten is shown
LINE_MAX = 1 << 20  #: a longer line is shown in parts
PART_MIN = 1 << 14  #: when memory is short, parts of this size are shown, too
HELD_MAX = 16 << 20  #: waiting bytes of all hosts together; beyond it no line waits
LINES_S = 5_000  #: compared lines per second; beyond it, output is shown host by host
LINES_AT_ONCE = 40_000


PortLine = tuple[int, bytes]  #: port and line: a tuple, because there are many to compare


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines from one or more hosts; a last line without its end is a part of a line."""

    hosts: tuple[str, ...]
    port: int
    text: bytes
    at: float = 0.0


class LineBuffer:
    """Cut the bytes of one port of one host into whole lines."""

    def __init__(self) -> None:
        self.rest = bytearray()  #: an incomplete line
        self.draft = b""  #: a line that its program is overwriting
        self.drawn_at = float("-inf")  #: when such a line was last shown
        self.drawn = False  #: a part of the current line has been shown

    @property
    def held_bytes(self) -> int:
        """The number of bytes waiting here."""
        return len(self.rest) + len(self.draft)

    def feed(self, piece: bytes, now: float) -> bytes:
        """Add a piece, and return the lines that are complete."""
        end = piece.rfind(b"\n") + 1
        if not end:
            self.rest += piece
            whole = b""
        else:
            whole = b"".join((self.rest, memoryview(piece)[:end]))
            self.rest = bytearray(piece[end:])
        if whole and (self.draft or self.drawn or b"\r" in whole):
            whole = b"".join(
                self._resolve_overwrites(line) for line in whole.splitlines(keepends=True)
            )
        return whole + self._take_draft(now)

    def _resolve_overwrites(self, line: bytes) -> bytes:
        """Remove the overwritten parts of a line; splitlines cuts at carriage returns, too."""
        if line.endswith(b"\r"):
            self.draft = line[:-1] or self.draft
            return b""
        text = line.rstrip(b"\r\n") or self.draft
        seen, self.drawn, self.draft = self.drawn and not text, False, b""
        return b"" if seen else text + b"\n"

    def _take_draft(self, now: float) -> bytes:
        """Return, now and then, a line that is being overwritten, or a part of an endless one."""
        shown = b""
        cut = self.rest.rfind(b"\r", 0, -1) + 1  # the last byte may be half of \r\n
        if cut:
            self.draft = bytes(self.rest[:cut]).strip(b"\r").rpartition(b"\r")[2] or self.draft
            del self.rest[:cut]
        if self.draft and now - self.drawn_at >= REDRAW_S:
            self.drawn_at = now
            shown, self.draft, self.drawn = self.draft + b"\n", b"", True
        if len(self.rest) > LINE_MAX:
            shown += bytes(self.rest)
            self.rest.clear()
        return shown

    def take_rest(self) -> bytes:
        """Return what is left at the end, even an incomplete line."""
        rest = bytes(self.rest).rstrip(b"\r").rpartition(b"\r")[2] or self.draft
        self.rest.clear()
        self.draft = b""
        return rest


class FoldingMerger:
    """Show a line that several hosts print once, after a short wait for all of them."""

    def __init__(self, hosts: Iterable[str], window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._open = set(hosts)  #: hosts that may still print
        self._lines: dict[tuple[str, int], LineBuffer] = {}
        self._waiting: dict[str, deque[tuple[float, PortLine]]] = {
            host: deque() for host in self._open
        }
        self._first: dict[PortLine, dict[str, None]] = {}  #: the hosts that have this line in front
        self._agenda: list[tuple[float, int, str]] = []  #: lines in front, the oldest first
        self._turn: dict[str, int] = {}  #: each host's valid entry in it
        self._number = count()
        self._held = 0
        self._may = float(LINES_AT_ONCE)  #: lines that may be compared now
        self._at = 0.0

    def add_host(self, host: str) -> None:
        """Add a host that may print, or one that had ended."""
        if host not in self._open:
            self._open.add(host)
            self._waiting.setdefault(host, deque())
            for key in [key for key in self._lines if key[0] == host]:
                del self._lines[key]

    def feed(self, host: str, port: int, piece: bytes, now: float) -> list[Block]:
        """Add output of a host; return what can be shown now."""
        lines = self._lines.setdefault((host, port), LineBuffer())
        before = lines.held_bytes
        whole = lines.feed(piece, now)
        self._held += lines.held_bytes - before
        blocks = self._enqueue_lines(host, port, whole, now)
        if self._held > HELD_MAX:
            blocks += self._flush_all(now)
        return blocks

    def end_host(self, host: str, now: float) -> list[Block]:
        """Note that a host prints nothing more; return what can be shown now."""
        blocks: list[Block] = []
        for (whose, port), lines in self._lines.items():
            if whose == host:
                self._held -= lines.held_bytes
                rest = lines.take_rest()
                blocks += self._enqueue_lines(host, port, rest + b"\n" if rest else b"", now)
        self._open.discard(host)
        return blocks + self._take_agreed(list(self._first))

    def due_blocks(self, now: float) -> list[Block]:
        """Return the lines that have waited long enough."""
        blocks = []
        while (at := self.wake_at()) is not None and at <= now + 1e-9:
            blocks.append(self._take_line(self._waiting[self._agenda[0][2]][0][1]))
        return join_blocks(blocks + self._take_agreed(self._first)) if blocks else []

    def wake_at(self) -> float | None:
        """When the next line will have waited long enough."""
        while self._agenda:
            at, number, host = self._agenda[0]
            if self._turn[host] == number and self._waiting[host]:
                return at + self._window_s
            heappop(self._agenda)
        return None

    def close(self, now: float) -> list[Block]:
        """Return everything that is left."""
        blocks = []
        for host in sorted(self._open, key=natural_key):
            blocks += self.end_host(host, now)
        return join_blocks(blocks + self._flush_all(now))

    def _enqueue_lines(self, host: str, port: int, whole: bytes, now: float) -> list[Block]:
        """Add lines to the host's queue."""
        if not whole:
            return []
        queue = self._waiting[host]
        if not self._may_compare(whole.count(b"\n"), now):
            return join_blocks([*self._flush_host(host), Block((host,), port, whole, now)])
        empty = not queue
        lines = whole.splitlines(keepends=True) if b"\r" not in whole else split_lines(whole)
        queue.extend((now, (port, line)) for line in lines)
        self._held += len(whole)
        if not empty:
            return []
        self._step_up(host)
        return self._take_agreed([queue[0][1]])

    def _may_compare(self, many: int, now: float) -> bool:
        self._may = min(LINES_AT_ONCE, self._may + max(0.0, now - self._at) * LINES_S)
        self._at = now
        if many > self._may:
            return False
        self._may -= many
        return True

    def _flush_host(self, host: str) -> list[Block]:
        """Return all waiting lines of one host."""
        queue = self._waiting[host]
        if not queue:
            return []
        front = self._first[queue[0][1]]
        del front[host]
        if not front:
            del self._first[queue[0][1]]
        blocks = [Block((host,), port, line, at) for at, (port, line) in queue]
        self._held -= sum(len(block.text) for block in blocks)
        queue.clear()
        return blocks

    def _step_up(self, host: str) -> None:
        """Move the next line of a host to the front of its queue."""
        at, line = self._waiting[host][0]
        self._first.setdefault(line, {})[host] = None
        number = self._turn[host] = next(self._number)
        heappush(self._agenda, (at, number, host))

    def _take_agreed(self, fronts: Iterable[PortLine]) -> list[Block]:
        """Return the lines that all hosts that may still print have in front."""
        blocks = []
        waiting = deque(fronts)
        while waiting:
            line = waiting.popleft()
            hosts = self._first.get(line)
            if hosts and len(self._open) <= len(hosts) and self._open <= hosts.keys():
                blocks.append(self._take_line(line))
                waiting.extend(self._first)
        return join_blocks(blocks)

    def _take_line(self, line: PortLine) -> Block:
        """Take this line from all hosts that have it in front."""
        hosts = self._first.pop(line)
        at = min(self._waiting[host][0][0] for host in hosts)
        for host in hosts:
            queue = self._waiting[host]
            queue.popleft()
            if queue:
                self._step_up(host)
        self._held -= len(line[1]) * len(hosts)
        return Block(tuple(sorted(hosts)), *line, at)

    def _flush_all(self, now: float) -> list[Block]:
        """Return everything at once, host by host, because there is too much to wait."""
        blocks = [block for host in self._waiting for block in self._flush_host(host)]
        for (host, port), lines in self._lines.items():
            if len(lines.rest) > PART_MIN:
                self._held -= len(lines.rest)
                blocks.append(Block((host,), port, bytes(lines.rest), now))
                lines.rest.clear()
        return join_blocks(blocks)


class PlainMerger:
    """Show each host's whole lines as they come."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], LineBuffer] = {}

    def feed(self, host: str, port: int, piece: bytes, now: float) -> list[Block]:
        """Add output of a host; return what can be shown now."""
        whole = self._lines.setdefault((host, port), LineBuffer()).feed(piece, now)
        return [Block((host,), port, whole, now)] if whole else []

    def end_host(self, host: str, now: float) -> list[Block]:
        """Note that a host prints nothing more; return what can be shown now."""
        rests = [
            Block((host,), port, lines.take_rest() + b"\n", now)
            for (whose, port), lines in self._lines.items()
            if whose == host and lines.held_bytes
        ]
        return [block for block in rests if block.text != b"\n"]

    def due_blocks(self, now: float) -> list[Block]:
        return []

    def wake_at(self) -> float | None:
        return None

    def close(self, now: float) -> list[Block]:
        """Return everything that is left."""
        hosts = sorted({host for host, _ in self._lines})
        return [block for host in hosts for block in self.end_host(host, now)]


def split_lines(whole: bytes) -> list[bytes]:
    """Split at line feeds only: carriage returns within a line stay."""
    lines = [line + b"\n" for line in whole.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def join_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Merge successive blocks of the same hosts."""
    if len(blocks) < 2:
        return list(blocks)
    joined: list[list[Block]] = []
    for block in blocks:
        before = joined[-1][0] if joined else None
        if before and (before.hosts, before.port) == (block.hosts, block.port):
            joined[-1].append(block)
        else:
            joined.append([block])
    return [
        Block(run[0].hosts, run[0].port, b"".join(one.text for one in run), run[-1].at)
        if len(run) > 1
        else run[0]
        for run in joined
    ]


def prefix_lines(block: Block, *, prefix: str | None = None) -> bytes:
    """Prefix every line, as in `gpt/w[0-7]: line`; an incomplete line is ended."""
    before = (fold_names(block.hosts) + ": " if prefix is None else prefix).encode()
    text = block.text if block.text.endswith(b"\n") else block.text + b"\n"
    follows = text.replace(b"\n", b"\n" + before)  # also the last line's end
    return b"".join((before, memoryview(follows)[: len(follows) - len(before)]))


def json_line(host: str, port: str, piece: bytes, at: float) -> bytes:
    """One line of JSON; bytes that are not UTF-8 are in base64."""
    body: Mapping[str, object]
    try:
        body = {"text": piece.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(piece).decode()}
    content = {"host": host, "time": round(at, 6), "port": port, **body}
    return json_text(content).encode() + b"\n"


def file_name(host: str, port: str) -> str:
    """The file name of a host's output in an --output directory: gpt-0-w3.out"""
    return f"{host.replace('/', '-')}.{port.removeprefix('std')}"
