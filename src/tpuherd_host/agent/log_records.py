"""How a log is written: records of time, port and bytes, one behind the other.

A place in a log is its *logical offset*: how many bytes of records were written before it, counted
from the log's begin also when the oldest are dropped. A reader remembers the offset behind the last
whole record it has, and asks from there. Two ports are said by the agent itself:

GAP (254)   these many bytes of output were lost here, since the disk was full: eight bytes, big end
JUMP (255)  never in a file: the records before this logical offset are dropped: eight bytes. The
            reader's offset is that number now.
"""

import struct
from typing import Iterator, NamedTuple

HEAD = struct.Struct(">dBI")  #: seconds since 1970, port, length
NUMBER = struct.Struct(">Q")
PIECE_MAX = 1 << 16  #: the longest that the agent writes
LENGTH_MAX = 1 << 20  #: a longer one is no record

GAP, JUMP = 254, 255


class BadRecord(Exception):
    """These bytes are no log."""


class Record(NamedTuple):
    """What came out at a time."""

    at: float
    port: int
    piece: bytes

    @property
    def size(self) -> int:
        """How far it moves the logical offset; a JUMP sets it instead."""
        return HEAD.size + len(self.piece)


def pack_record(at: float, port: int, piece: bytes) -> bytes:
    """A record, as bytes."""
    return HEAD.pack(at, port, len(piece)) + piece


def parse_number(piece: bytes) -> int:
    """What a GAP or JUMP says."""
    if len(piece) != NUMBER.size:
        raise BadRecord("no number")
    return int(NUMBER.unpack(piece)[0])


class RecordReader:
    """Takes bytes of a log as they come, gives whole records, and knows the offset behind them."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.rest = b""

    def feed(self, piece: bytes) -> Iterator[Record]:
        """The records that are whole now."""
        text = self.rest + piece if self.rest else piece
        start = 0
        try:
            while len(text) - start >= HEAD.size:
                at, port, length = HEAD.unpack_from(text, start)
                if length > LENGTH_MAX:
                    raise BadRecord("no record begins like this")
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
    """How many of these bytes are whole records: what is behind them was cut by a crash."""
    end = 0
    while len(text) - end >= HEAD.size:
        length = HEAD.unpack_from(text, end)[2]
        if length > LENGTH_MAX or end + HEAD.size + length > len(text):
            break
        end += HEAD.size + length
    return end
