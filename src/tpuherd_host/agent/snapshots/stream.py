"""The stream in which a snapshot travels: compressed once, relayed unchanged, read piecewise.

The outer layer is blocks of kind and length: compressed; stored (what zlib would not shrink); or
the end. Controllers of protocol 1 may also send a delta to the content that is replaced, which the
host has: a part of it, or compressed with it as the dictionary. The inner layer is a head (JSON), a
body (rows), then contents, each after the number of its row.
"""

import json
import struct
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple

BLOCK = struct.Struct(">BI")
NUMBER = struct.Struct(">I")
LIKENESS = struct.Struct(">II")  #: a row's number, and where its old content begins to be similar
SAMENESS = struct.Struct(">III")  #: a row's number, and which part of its old content is the same
DEFLATED, FRESH, STORED, END, LIKE, SAME = 1, 2, 3, 4, 5, 6  #: FRESH begins a new zlib stream
LIKE_PIECE = 1 << 14  #: bytes of a content in a LIKE block
BLOCK_MAX = 1 << 21
BATCH = 60_000  #: bytes are collected up to this size before they are sent
PLAIN_MAX = 1 << 20
PROBE = 1 << 13
PROBED = 1 << 16  #: smaller files are always compressed
HEAD_MAX = 1 << 24


MakeCompressor = Callable[[int], Any]  #: makes a compressor of a level


class BrokenStream(ValueError):
    """The stream is cut, or is not a stream."""


class StreamContent(NamedTuple):
    """A content to send: the number of its row, its size, its pieces."""

    number: int
    size: int
    pieces: Iterable[bytes]


class BlockWriter:
    def __init__(self, level: int, made: MakeCompressor) -> None:
        self.level = level
        self.made = made
        self.zlib = made(level)
        self.kind = DEFLATED
        self.open = False  #: the compressor has unflushed bytes
        self.blocks: List[bytes] = []
        self.size = 0

    def put(self, piece: bytes) -> None:
        """Add bytes to compress."""
        self._add_block(self.kind, self.zlib.compress(piece))
        self.open = True

    def put_stored(self, piece: bytes) -> None:
        """Add bytes to send as they are."""
        self._flush(zlib.Z_SYNC_FLUSH)
        self._add_block(STORED, piece)

    def set_level(self, level: int) -> None:
        if level != self.level:
            self.open = True
            self._flush(zlib.Z_FINISH)
            self.level, self.zlib, self.kind = level, self.made(level), FRESH

    def end_stream(self) -> None:
        self._flush(zlib.Z_FINISH)
        self._add_block(END, b"", empty=True)

    def take_blocks(self) -> bytes:
        """Return the blocks so far."""
        blocks = b"".join(self.blocks)
        self.blocks, self.size = [], 0
        return blocks

    def _flush(self, how: int) -> None:
        if self.open:
            self._add_block(self.kind, self.zlib.flush(how))
            self.open = False

    def _add_block(self, kind: int, piece: bytes, *, empty: bool = False) -> None:
        if piece or empty:
            self.blocks.append(BLOCK.pack(kind, len(piece)) + piece)
            self.size += len(piece) + BLOCK.size
            if kind == FRESH:
                self.kind = DEFLATED


def encode_stream(
    head: Mapping[str, Any],
    body: bytes,
    contents: Iterable[StreamContent],
    level: Callable[[], int],
    made: MakeCompressor = zlib.compressobj,
) -> Iterator[bytes]:
    """Yield all blocks, some at a time. `level` is asked before each content; `made` makes
    compressors whose output zlib understands."""
    press = BlockWriter(level(), made)
    encoded = json.dumps(dict(head, body=len(body))).encode()
    press.put(NUMBER.pack(len(encoded)) + encoded)
    for at in range(0, len(body), PLAIN_MAX):
        press.put(body[at : at + PLAIN_MAX])
        if press.size >= BATCH:
            yield press.take_blocks()
    for content in contents:
        press.set_level(level())
        press.put(NUMBER.pack(content.number))
        stored = None
        for piece in content.pieces:
            if stored is None:
                stored = is_incompressible(piece) if content.size >= PROBED else False
            if stored:
                press.put_stored(piece)
            else:
                press.put(piece)
            if press.size >= BATCH:
                yield press.take_blocks()
                if not stored:
                    press.set_level(level())
    press.end_stream()
    yield press.take_blocks()


def delta_dictionary(old: bytes, start: int) -> bytes:
    """Return the part of a content that is the dictionary; zlib takes no empty one."""
    return old[start : start + (1 << zlib.MAX_WBITS)] or b"\0"


def is_incompressible(piece: bytes) -> bool:
    """Whether compressing is useless, judged by the beginning."""
    probe = piece[:PROBE]
    return len(zlib.compress(probe, 1)) > 0.95 * len(probe)


def read_blocks(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield the blocks, whole with their heads; `read` returns some bytes, none at the end."""
    rest = bytearray()
    while True:
        while len(rest) < BLOCK.size:
            rest += read_some(read)
        kind, length = BLOCK.unpack_from(rest)
        if length > BLOCK_MAX or not DEFLATED <= kind <= SAME:
            raise BrokenStream("not a snapshot stream")
        whole = BLOCK.size + length
        while len(rest) < whole:
            rest += read_some(read)
        yield bytes(rest[:whole])
        del rest[:whole]
        if kind == END:
            return


def read_some(read: Callable[[], bytes]) -> bytes:
    """Read some bytes; BrokenStream if there are none."""
    piece = read()
    if not piece:
        raise BrokenStream("the stream was cut")
    return piece


def no_content(number: int) -> bytes:
    """Return no content for any row."""
    raise BrokenStream("the stream needs contents that are not on this host")


def decode_blocks(
    blocks: Iterable[bytes], old: Callable[[int], bytes] = no_content
) -> Iterator[bytes]:
    """Yield the inner bytes, at most PLAIN_MAX at a time. `old` returns what the content of a row
    replaces; it is asked after all rows were read."""
    inflate = zlib.decompressobj()
    for block in blocks:
        kind, piece = block[0], block[BLOCK.size :]
        if kind == STORED:
            yield piece
        if kind == FRESH:
            inflate = zlib.decompressobj()
        if kind == LIKE:
            yield inflate_delta(piece, old)
        if kind == SAME:
            yield old_part(piece, old)
        if kind in (DEFLATED, FRESH):
            try:
                while piece:
                    yield inflate.decompress(piece, PLAIN_MAX)
                    piece = inflate.unconsumed_tail
                while more := inflate.decompress(b"", PLAIN_MAX):
                    yield more
            except zlib.error as error:
                raise BrokenStream(f"the stream is corrupt: {error}") from None


def inflate_delta(piece: bytes, old: Callable[[int], bytes]) -> bytes:
    if len(piece) < LIKENESS.size:
        raise BrokenStream("not a snapshot stream")
    number, start = LIKENESS.unpack_from(piece)
    shape = delta_dictionary(old(number), start)
    inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS, zdict=shape)
    try:
        return inflate.decompress(piece[LIKENESS.size :], LIKE_PIECE)
    except zlib.error as error:
        raise BrokenStream(f"the stream is corrupt: {error}") from None


def old_part(piece: bytes, old: Callable[[int], bytes]) -> bytes:
    """Return a part of the replaced content."""
    if len(piece) != SAMENESS.size:
        raise BrokenStream("not a snapshot stream")
    number, at, many = SAMENESS.unpack(piece)
    return old(number)[at : at + many]


class ContentReader:
    """Reads the inner layer from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read_pieces(self, many: int) -> Iterator[bytes]:
        while many:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    raise BrokenStream("the stream ended too early")
                self._rest = memoryview(piece)
            some = self._rest[:many]
            self._rest = self._rest[len(some) :]
            many -= len(some)
            if some:
                yield bytes(some)

    def read_bytes(self, many: int) -> bytes:
        return b"".join(self.read_pieces(many))

    def read_number(self) -> int:
        """Read the number of the row whose content follows."""
        number: int = NUMBER.unpack(self.read_bytes(NUMBER.size))[0]
        return number

    def read_head(self) -> Dict[str, Any]:
        length = self.read_number()
        if length > HEAD_MAX:
            raise BrokenStream("not a snapshot stream")
        head: Dict[str, Any] = json.loads(self.read_bytes(length))
        return head

    def drain(self) -> None:
        """Read to the end."""
        self._rest = memoryview(b"")
        for _ in self._pieces:
            pass
