"""Calls a gRPC method of a program on this host, with the little of HTTP/2 that this takes.

Any program may listen on the port: an answer is bounded in bytes and in time. The headers of
answers are skipped, so that nothing of them is decoded: an answer without a message is a failure.
"""

import socket
import struct
import time
from typing import Dict, List, Optional, Sequence, Set

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
FRAME = struct.Struct(">BHBBI")
FRAME_MAX = 1 << 14
BYTES_MAX = (1 << 16) - 1  #: of all answers: what HTTP/2 lets a server send unasked
NOT_GRPC = "it does not speak gRPC"


class CallFailed(Exception):
    """There is no answer; its text says why."""


class NothingServes(CallFailed):
    """The port is closed, or its owner has nothing to say."""


def pack_frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    length = len(content)
    return FRAME.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + content


def pack_requests(path: str, requests: Sequence[bytes]) -> bytes:
    """Return everything that is sent before the first answer."""
    fields = (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
        ("content-type", "application/grpc"), ("te", "trailers"),
    )  # fmt: skip
    head = b"".join(
        b"\0" + b"".join(bytes((len(word),)) + word.encode() for word in field) for field in fields
    )
    sent = [PREFACE, pack_frame(SETTINGS, 0, 0)]
    for place, request in enumerate(requests):
        stream = 2 * place + 1
        message = struct.pack(">BI", 0, len(request)) + request
        sent.append(pack_frame(HEADERS, END_HEADERS, stream, head))
        sent.append(pack_frame(DATA, END, stream, message))
    return b"".join(sent)


def call_method(
    port: int, path: str, requests: Sequence[bytes], seconds: float
) -> List[Optional[bytes]]:
    """Send all requests at once and return the messages; None for a call that failed."""
    late_at = time.monotonic() + seconds
    answers = Answers(len(requests))
    line = None
    try:
        line = socket.create_connection(("127.0.0.1", port), seconds)
        line.sendall(pack_requests(path, requests))
        while answers.awaited:
            left_s = late_at - time.monotonic()
            if left_s <= 0:
                raise socket.timeout
            line.settimeout(left_s)
            piece = line.recv(FRAME_MAX)
            if not piece:
                raise ConnectionResetError
            line.sendall(answers.take_bytes(piece))
    except socket.timeout:
        raise CallFailed(f"it did not answer in {seconds:g} s") from None
    except OSError:
        if answers.received:
            raise CallFailed("it closed the connection") from None
        raise NothingServes("nothing is served there") from None
    finally:
        if line is not None:
            line.close()
    return answers.decode_messages()


class Answers:
    """The answers of one connection, as they come in."""

    def __init__(self, many: int) -> None:
        self.bodies: Dict[int, bytearray] = {2 * place + 1: bytearray() for place in range(many)}
        self.awaited: Set[int] = set(self.bodies)
        self.received = 0
        self.buffer = bytearray()

    def take_bytes(self, piece: bytes) -> bytes:
        """Take what came in, and return what to answer at once."""
        self.received += len(piece)
        if self.received > BYTES_MAX:
            raise CallFailed("its answer is too long")
        self.buffer += piece
        replies = b""
        while len(self.buffer) >= FRAME.size:
            high, low, kind, flags, stream = FRAME.unpack_from(self.buffer)
            end = FRAME.size + (high << 16 | low)
            if end > FRAME.size + FRAME_MAX:
                raise CallFailed(NOT_GRPC)
            if len(self.buffer) < end:
                break
            content = bytes(self.buffer[FRAME.size : end])
            del self.buffer[:end]
            replies += self.take_frame(kind, flags, stream, content)
        return replies

    def take_frame(self, kind: int, flags: int, stream: int, content: bytes) -> bytes:
        if kind in (SETTINGS, PING) and not flags & ACK:
            return pack_frame(kind, ACK, 0, content if kind == PING else b"")
        if kind == GOAWAY:
            raise CallFailed("it ended the connection")
        if stream in self.awaited and kind in (DATA, HEADERS, RESET):
            if kind == DATA:
                padding = content[0] + 1 if flags & PADDED and content else 0
                start = min(padding, 1)
                self.bodies[stream] += content[start : len(content) - padding + start]
            if kind == RESET or flags & END:
                self.awaited.discard(stream)
        return b""

    def decode_messages(self) -> List[Optional[bytes]]:
        return [parse_message(bytes(body)) for _, body in sorted(self.bodies.items())]


def parse_message(body: bytes) -> Optional[bytes]:
    """Return the only message of an answer; None if there is none."""
    if not body:
        return None
    if len(body) < 5 or body[0] or len(body) - 5 != int.from_bytes(body[1:5], "big"):
        raise CallFailed(NOT_GRPC)
    return body[5:]
