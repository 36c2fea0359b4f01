"""The protocol between a controller and an agent: frames on one stream of bytes.

A call is opened by CALL with an id that the caller chooses, may carry DATA both ways, and ends with
one REPLY or FAIL; then its id is free again. EVENT has the id 0 and answers no call. Each side may
send as much DATA of a call as the other gave CREDIT for; opening a call gives WINDOW of it.
"""

import json
import re
import struct
from typing import Any, Dict, Iterator, List, NamedTuple

PROTOCOL = 1  #: raised for changes that an older partner cannot understand
HEAD = struct.Struct(">IBI")  #: length of the payload, kind, id
PAYLOAD_MAX = 1 << 20
DATA_MAX = 1 << 16  #: so that no call delays another
WINDOW = 1 << 18  #: bytes of DATA of one call, each way, before the first CREDIT

HELLO = 1  #: JSON; the first frame each way, id 0
CALL = 2  #: JSON {"verb": name, ...}
REPLY = 3  #: JSON; the call succeeded
FAIL = 4  #: JSON {"error": word, "sentence": text}; the call failed
DATA = 5  #: one byte of port, then bytes
END = 6  #: one byte of port: no more data on it from this side
CREDIT = 7  #: four bytes: how many more bytes of DATA may come
EVENT = 8  #: JSON {"event": name, ...}; id 0
CANCEL = 9  #: the caller gives up; the call ends by FAIL "cancelled"

STDIN, STDOUT, STDERR, LOG, BLOBS = 0, 1, 2, 3, 4  #: ports of DATA
HALF = re.compile(rb"\\u[dD]|\xed")  #: may be half a character, which no file or database takes


class BadFrame(Exception):
    """The partner does not speak this protocol: close the connection."""


class Frame(NamedTuple):
    kind: int
    id: int
    payload: bytes

    @property
    def content(self) -> Dict[str, Any]:
        """The JSON object in the payload."""
        try:
            content = json.loads(self.payload)
            if HALF.search(self.payload):
                content = json.loads(
                    json.dumps(content, ensure_ascii=False).encode(errors="replace")
                )
        except (ValueError, RecursionError) as error:
            raise BadFrame("not JSON") from error
        if not isinstance(content, dict):
            raise BadFrame("not an object")
        return content


def pack_json(kind: int, id: int, content: Dict[str, Any]) -> bytes:
    return pack_frame(kind, id, json.dumps(content, separators=(",", ":")).encode())


def pack_data(id: int, port: int, piece: bytes) -> bytes:
    return pack_frame(DATA, id, bytes([port]) + piece)


def pack_credit(id: int, many: int) -> bytes:
    return pack_frame(CREDIT, id, struct.pack(">I", many))


def pack_frame(kind: int, id: int, payload: bytes) -> bytes:
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"too long for one frame: {len(payload)} bytes")
    return HEAD.pack(len(payload), kind, id) + payload


class FrameReader:
    """Turns bytes as they arrive into whole frames."""

    def __init__(self) -> None:
        self.pieces: List[bytes] = []  #: of an incomplete frame
        self.lacking = 0  #: bytes until the next step

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Return the frames that are complete now; pieces of a long frame are joined only once."""
        self.pieces.append(piece)
        self.lacking -= len(piece)
        if self.lacking > 0:
            return
        text = b"".join(self.pieces)
        start, end = 0, HEAD.size
        while len(text) >= end:
            length, kind, id = HEAD.unpack_from(text, start)
            if length > PAYLOAD_MAX or not HELLO <= kind <= CANCEL:
                raise BadFrame("not a frame of this protocol")
            end = start + HEAD.size + length
            if len(text) < end:
                break
            yield Frame(kind, id, text[start + HEAD.size : end])
            start, end = end, end + HEAD.size
        self.pieces = [text[start:]]
        self.lacking = end - len(text)
