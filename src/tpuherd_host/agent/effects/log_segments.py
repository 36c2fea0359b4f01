"""A log on disk in segments with logical offsets; the oldest segments are dropped."""

import os
import re
from math import inf
from typing import BinaryIO, List, Optional, Tuple

from tpuherd_host.agent.log_records import (
    GAP,
    HEAD,
    NUMBER,
    PIECE_MAX,
    TRACEBACK,
    complete_length,
    exception_line,
    pack_record,
)

SEGMENT_MAX = 16 << 20
SEGMENTS = 16  #: a full log has about this many
PREFIX = "log."
LAST_LINES = 20
EXCEPTION_MAX = 200  #: lines of an exception; before more of them the program went on,
BURST_S = 2.0  #: unless all of them were written within this time


class SegmentedLog:
    """Owns the segments of a folder, each named `log.<its first logical offset>`."""

    def __init__(self, folder: str, cap: int, raw: bool = False, fresh: bool = False) -> None:
        self.folder = folder
        self.raw = raw  #: bytes without records: a terminal's
        self.segment = max(1 << 15, min(SEGMENT_MAX, cap // SEGMENTS))
        self.cap = cap
        self.starts: List[int] = []
        self.file: Optional[BinaryIO] = None
        self.readers: dict[int, int] = {}  #: file descriptors by the start of their segment
        self.length = 0
        self.lost_bytes = 0  #: in total
        self.gap = 0  #: not noted in the log yet
        self.broken = False  #: the newest segment ends with half a record: begin another
        self.dirty = False
        if not fresh:
            self.load()

    @property
    def first_offset(self) -> int:
        """The oldest offset that can be read."""
        return self.starts[0] if self.starts else self.length

    def segment_path(self, start: int) -> str:
        return os.path.join(self.folder, f"{PREFIX}{start:020d}")

    def load(self) -> None:
        """Load the segments of an earlier agent; drop a record that a crash cut."""
        names = [n for n in os.listdir(self.folder) if n.startswith(PREFIX)]
        self.starts = sorted(int(name[len(PREFIX) :]) for name in names)
        if not self.starts:
            return
        path = self.segment_path(self.starts[-1])
        with open(path, "rb+") as file:
            text = file.read()
            end = len(text) if self.raw else complete_length(text)
            if end < len(text):
                file.truncate(end)
        self.length = self.starts[-1] + end

    def append(self, at: float, port: int, piece: bytes) -> bool:
        """Write a record; False if the disk is full: the next record says how much was lost."""
        text = b""
        if self.gap and not self.raw:
            text = pack_record(at, GAP, NUMBER.pack(self.gap))
        text += piece if self.raw else pack_record(at, port, piece)
        try:
            self.write(text)
        except OSError:
            self.truncate_partial()
            self.gap += len(piece)
            self.lost_bytes += len(piece)
            return False
        self.gap = 0
        return True

    def write(self, text: bytes) -> None:
        """Write all of it or nothing to the newest segment."""
        if self.file is None or self.length - self.starts[-1] >= self.segment:
            self.rotate_segment()
        assert self.file is not None
        view = memoryview(text)
        while view:
            view = view[self.file.write(view) :]
        self.length += len(text)
        self.dirty = True

    def truncate_partial(self) -> None:
        """Drop a record that was written only in part."""
        if self.file is not None:
            try:
                os.ftruncate(self.file.fileno(), self.length - self.starts[-1])
            except OSError:
                self.close_writer()
                self.broken = True

    def rotate_segment(self) -> None:
        """Start a segment and drop the oldest if there are too many."""
        size = self.length - self.starts[-1] if self.starts else self.segment
        fresh = size >= self.segment or (self.broken and size > 0)
        start = self.length if fresh else self.starts[-1]
        file = open(self.segment_path(start), "ab", buffering=0, opener=open_private)  # noqa: SIM115
        self.close_writer()
        self.file = file
        self.broken = False
        if fresh and start not in self.starts:
            self.starts.append(start)
        room = self.segment + PIECE_MAX + 2 * HEAD.size  # what this segment may still need
        while len(self.starts) > 1 and self.length - self.starts[0] > self.cap - room:
            oldest = self.starts.pop(0)
            reader = self.readers.pop(oldest, None)
            if reader is not None:
                os.close(reader)
            os.unlink(self.segment_path(oldest))

    def read(self, offset: int, many: int) -> bytes:
        """Return exactly this many bytes, from as many segments as necessary."""
        pieces = []
        while many > 0:
            index = max(i for i, start in enumerate(self.starts) if start <= offset)
            start = self.starts[index]
            end = self.starts[index + 1] if index + 1 < len(self.starts) else self.length
            piece = os.pread(self.segment_reader(start), min(many, end - offset), offset - start)
            if not piece:  # the file was truncated: keep the offsets right
                piece = bytes(min(many, end - offset))
            pieces.append(piece)
            offset += len(piece)
            many -= len(piece)
        return b"".join(pieces)

    def segment_reader(self, start: int) -> int:
        """Return a file descriptor for a segment; only one is kept open."""
        if start not in self.readers:
            self.close_readers()
            self.readers[start] = os.open(self.segment_path(start), os.O_RDONLY | os.O_CLOEXEC)
        return self.readers[start]

    def close_readers(self) -> None:
        for reader in self.readers.values():
            os.close(reader)
        self.readers.clear()

    def last_lines(self, many: int = 8192, within_s: float = inf) -> List[str]:
        """Return the last lines, as far as the last records show them, written within this time."""
        if self.raw:
            text = self.read(max(self.first_offset, self.length - many), min(many, self.length))
        else:
            text = self.last_pieces(many, within_s)
        return [line[:500] for line in text.decode("utf-8", "replace").splitlines()]

    def last_pieces(self, many: int, within_s: float) -> bytes:
        pieces: List[Tuple[float, bytes]] = []
        for start in self.starts[-2:]:
            end = self.length if start == self.starts[-1] else self.starts[-1]
            text = self.read(start, end - start)
            place = 0
            while place + HEAD.size <= len(text):
                at, port, length = HEAD.unpack_from(text, place)
                place += HEAD.size
                if port != GAP:
                    pieces.append((at, text[place : place + length]))
                place += length
        since = pieces[-1][0] - within_s if pieces else 0.0
        return b"".join(piece for at, piece in pieces if at >= since)[-many:]

    def file_to_sync(self) -> Optional[int]:
        """Return a descriptor that the caller syncs and closes; None if nothing is new."""
        if not self.dirty or self.file is None:
            return None
        self.dirty = False
        return os.dup(self.file.fileno())

    def close_writer(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def close(self) -> None:
        """Close its files; it reopens them when necessary."""
        self.close_writer()
        self.close_readers()


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def choose_last_lines(lines: List[str], burst: List[str], *, raised: bool) -> List[str]:
    """Return the last lines; of a program that an exception may have ended, whose text fills them,
    first the head of its traceback and the line that says which exception it is.

    `burst` are the lines that were written in the last moment.
    """
    last, before = lines[-LAST_LINES:], lines[-LAST_LINES - EXCEPTION_MAX : -LAST_LINES]
    if not raised or any(TRACEBACK in line for line in last):
        return last
    before = max(before, burst[:-LAST_LINES], key=len)
    start = max((at for at, line in enumerate(before) if TRACEBACK in line), default=-1)
    if start < 0:
        return last
    first = exception_line(before, start)
    if not re.match(r"[A-Za-z_][\w.]*(: |$)", first):
        return last
    return [before[start], first, *last[2:]]
