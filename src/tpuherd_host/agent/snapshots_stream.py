"""The one stream in which a snapshot travels: compressed once, passed on as it is, read by pieces.

Outside it is blocks of kind and length: compressed, as it is (what zlib would not make smaller), or
the end. Inside it is a head (JSON), a body (rows), then contents, each after the number of its row.
"""

import json
import struct
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple

BLOCK = struct.Struct(">BI")
NUMBER = struct.Struct(">I")
DEFLATED, FRESH, STORED, END = 1, 2, 3, 4  #: FRESH is DEFLATED that begins a new zlib stream
BLOCK_MAX = 1 << 21
BATCH = 60_000  #: so many bytes are gathered before they are sent
PLAIN_MAX = 1 << 20
PROBE = 1 << 13
PROBED = 1 << 16  #: smaller ones are compressed whatever they are
HEAD_MAX = 1 << 24


class Torn(ValueError):
    """The stream ended before its end, or is none."""


class Content(NamedTuple):
    """One content to be sent: the number of its row, its size, its pieces."""

    number: int
    size: int
    pieces: Iterable[bytes]


class Press:
    """Makes blocks."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.zlib = zlib.compressobj(level)
        self.kind = DEFLATED
        self.open = False  #: the compressor holds something back
        self.blocks: List[bytes] = []
        self.size = 0

    def put(self, piece: bytes) -> None:
        """To be compressed."""
        self._block(self.kind, self.zlib.compress(piece))
        self.open = True

    def store(self, piece: bytes) -> None:
        """To be sent as it is."""
        self._flush(zlib.Z_SYNC_FLUSH)
        self._block(STORED, piece)

    def turn(self, level: int) -> None:
        """Compress at another level from here on."""
        if level != self.level:
            self.open = True
            self._flush(zlib.Z_FINISH)
            self.level, self.zlib, self.kind = level, zlib.compressobj(level), FRESH

    def end(self) -> None:
        """No more."""
        self._flush(zlib.Z_FINISH)
        self._block(END, b"", empty=True)

    def taken(self) -> bytes:
        """The blocks so far."""
        blocks = b"".join(self.blocks)
        self.blocks, self.size = [], 0
        return blocks

    def _flush(self, how: int) -> None:
        if self.open:
            self._block(self.kind, self.zlib.flush(how))
            self.open = False

    def _block(self, kind: int, piece: bytes, *, empty: bool = False) -> None:
        if piece or empty:
            self.blocks.append(BLOCK.pack(kind, len(piece)) + piece)
            self.size += len(piece) + BLOCK.size
            if kind == FRESH:
                self.kind = DEFLATED


def stream(
    head: Mapping[str, Any],
    body: bytes,
    contents: Iterable[Content],
    level: Callable[[], int],
) -> Iterator[bytes]:
    """All blocks, some at a time. `level` is asked before each content."""
    press = Press(level())
    said = json.dumps(dict(head, body=len(body))).encode()
    press.put(NUMBER.pack(len(said)) + said)
    for at in range(0, len(body), PLAIN_MAX):
        press.put(body[at : at + PLAIN_MAX])
        if press.size >= BATCH:
            yield press.taken()
    for content in contents:
        press.turn(level())
        press.put(NUMBER.pack(content.number))
        stored = None
        for piece in content.pieces:
            if stored is None:
                stored = hopeless(piece) if content.size >= PROBED else False
            if stored:
                press.store(piece)
            else:
                press.put(piece)
            if press.size >= BATCH:
                yield press.taken()
                if not stored:
                    press.turn(level())
    press.end()
    yield press.taken()


def hopeless(piece: bytes) -> bool:
    """Whether compressing it would be for nothing, judged by its beginning."""
    probe = piece[:PROBE]
    return len(zlib.compress(probe, 1)) > 0.95 * len(probe)


def blocks(read: Callable[[], bytes]) -> Iterator[bytes]:
    """The blocks again, whole, head and all; `read` gives some bytes, none at the end."""
    rest = bytearray()
    while True:
        while len(rest) < BLOCK.size:
            rest += some(read)
        kind, length = BLOCK.unpack_from(rest)
        if length > BLOCK_MAX or not DEFLATED <= kind <= END:
            raise Torn("this is no stream of a snapshot")
        whole = BLOCK.size + length
        while len(rest) < whole:
            rest += some(read)
        yield bytes(rest[:whole])
        del rest[:whole]
        if kind == END:
            return


def some(read: Callable[[], bytes]) -> bytes:
    """Some bytes; Torn if there are none."""
    piece = read()
    if not piece:
        raise Torn("the stream was cut")
    return piece


def plain(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """What is in the blocks, at most PLAIN_MAX at a time."""
    inflate = zlib.decompressobj()
    for block in blocks:
        kind, piece = block[0], block[BLOCK.size :]
        if kind == STORED:
            yield piece
        if kind == FRESH:
            inflate = zlib.decompressobj()
        if kind in (DEFLATED, FRESH):
            try:
                while piece:
                    yield inflate.decompress(piece, PLAIN_MAX)
                    piece = inflate.unconsumed_tail
                while more := inflate.decompress(b"", PLAIN_MAX):
                    yield more
            except zlib.error as error:
                raise Torn(f"the stream is spoiled: {error}") from None


class Source:
    """What is inside the stream, read from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def pieces(self, many: int) -> Iterator[bytes]:
        """So many bytes, piece by piece."""
        while many:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    raise Torn("the stream ended too early")
                self._rest = memoryview(piece)
            some = self._rest[:many]
            self._rest = self._rest[len(some) :]
            many -= len(some)
            if some:
                yield bytes(some)

    def take(self, many: int) -> bytes:
        """So many bytes."""
        return b"".join(self.pieces(many))

    def number(self) -> int:
        """The number of the row whose content follows."""
        number: int = NUMBER.unpack(self.take(NUMBER.size))[0]
        return number

    def head(self) -> Dict[str, Any]:
        """What stands at the front."""
        length = self.number()
        if length > HEAD_MAX:
            raise Torn("this is no stream of a snapshot")
        head: Dict[str, Any] = json.loads(self.take(length))
        return head

    def drain(self) -> None:
        """To the end."""
        self._rest = memoryview(b"")
        for _ in self._pieces:
            pass
