"""The format of a log: records of time, port and bytes, one after the other.

A place in a log is its *logical offset*: how many bytes of records were written before it, counted
from the log's beginning even when the oldest records are dropped. A reader remembers the offset
behind its last whole record, and continues from there. Two ports belong to the agent itself:

GAP (254)   this many bytes of output were lost here because the disk was full: eight bytes, big end
JUMP (255)  never in a file: the records before this logical offset were dropped: eight bytes. The
            reader's offset is that number now.
"""

import re
import struct
from typing import Iterator, NamedTuple, Sequence

HEAD = struct.Struct(">dBI")  #: seconds since 1970, port, length
NUMBER = struct.Struct(">Q")
PIECE_MAX = 1 << 16  #: the longest that the agent writes
LENGTH_MAX = 1 << 20  #: a longer one is no record

GAP, JUMP = 254, 255
TRACEBACK = "Traceback (most recent call last)"
NAME_ALONE = re.compile(r"[A-Za-z_][\w.]*:\s*")  #: of an exception whose message begins below it


class BadRecord(Exception):
    """These bytes are not a log."""


class Record(NamedTuple):
    """What a process wrote, and when."""

    at: float
    port: int
    piece: bytes

    @property
    def size(self) -> int:
        """How far it moves the logical offset; a JUMP sets the offset instead."""
        return HEAD.size + len(self.piece)


def pack_record(at: float, port: int, piece: bytes) -> bytes:
    return HEAD.pack(at, port, len(piece)) + piece


def parse_number(piece: bytes) -> int:
    """Return the number in a GAP or JUMP."""
    if len(piece) != NUMBER.size:
        raise BadRecord("no number")
    return int(NUMBER.unpack(piece)[0])


class RecordReader:
    """Turns bytes of a log into whole records, and keeps the offset behind them."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.rest = b""

    def feed(self, piece: bytes) -> Iterator[Record]:
        """Return the records that are complete now."""
        text = self.rest + piece if self.rest else piece
        start = 0
        try:
            while len(text) - start >= HEAD.size:
                at, port, length = HEAD.unpack_from(text, start)
                if length > LENGTH_MAX:
                    raise BadRecord("not a log record")
                end = start + HEAD.size + length
                if len(text) < end:
                    break
                record = Record(at, port, text[start + HEAD.size : end])
                start = end
                if port == JUMP:
                    self.offset = parse_number(record.piece)
                else:
                    self.offset += record.size
                yield record
        finally:
            self.rest = text[start:]


def complete_length(text: bytes) -> int:
    """Return how many of these bytes are whole records: a crash may have cut the last one."""
    end = 0
    while len(text) - end >= HEAD.size:
        length = HEAD.unpack_from(text, end)[2]
        if length > LENGTH_MAX or end + HEAD.size + length > len(text):
            break
        end += HEAD.size + length
    return end


def exception_line(lines: Sequence[str], start: int) -> str:
    """Return the line that says which exception a traceback is of; "" if it is not there.

    `start` is the traceback's first line. That line is the first one that is not indented, behind
    what stands before all of them, such as "[rank0]: " or the frame of an exception group. If its
    message begins with empty lines, as `AssertionError:` of NumPy, its first text follows.
    """
    margin = lines[start].partition("Traceback")[0].replace("+ Exception Group ", "| ")
    bodies = iter([line[len(margin) * line.startswith(margin) :] for line in lines[start + 1 :]])
    first = next((body for body in bodies if body.strip() and body[0] != " "), "")
    if not NAME_ALONE.fullmatch(first):
        return first
    text = next((body.strip() for body in bodies if body.strip()), "")
    return first if not text or TRACEBACK in text else f"{first.rstrip()} {text}"
