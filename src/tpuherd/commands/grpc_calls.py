"""Calls methods of a gRPC server over a connection that is open already: plain HTTP/2."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tpuherd.commands.forward_port import ByteReader, ByteWriter
from tpuherd.errors import NotReached, OperationFailed

REPLY_BYTES_MAX = 1 << 18
HEARD_BYTES_MAX = 1 << 20  #: of all answers and whatever comes with them
NOT_FOUND, UNIMPLEMENTED = 5, 12
MESSAGE_MAX = 200
NO_GRPC = "it does not speak gRPC"
TOO_LONG = "its answer is too long"


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpcReply:
    """The answer to one call."""

    status: int = 0  #: of gRPC; 0: it succeeded
    message: str = ""  #: why not
    content: bytes = b""


@dataclass(kw_only=True, slots=True)
class PendingCall:
    """A call whose answer comes in."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    reply: GrpcReply | None = None


async def call_methods(
    ends: tuple[ByteReader, ByteWriter], path: str, requests: Sequence[bytes]
) -> list[GrpcReply]:
    """Send all requests to one method at once, and return the answers in their order.

    NotReached: the server closed the connection; OperationFailed: it does not speak gRPC.
    """
    reader, writer = ends
    config = h2.config.H2Configuration(client_side=True, header_encoding=None)
    http = h2.connection.H2Connection(config)
    http.initiate_connection()
    calls: dict[int, PendingCall] = {}
    foreign: bool | None = None  #: what was heard so far has no frame of HTTP/2
    for request in requests:
        stream = http.get_next_available_stream_id()
        http.send_headers(stream, request_headers(path))
        http.send_data(stream, struct.pack(">BI", 0, len(request)) + request, end_stream=True)
        calls[stream] = PendingCall()
    heard = 0
    try:
        while any(call.reply is None for call in calls.values()):
            writer.write(http.data_to_send())
            await writer.drain()
            data = await reader.read(1 << 16)
            heard += len(data)
            if heard > HEARD_BYTES_MAX:
                raise OperationFailed(NO_GRPC if foreign else TOO_LONG)
            if not data and foreign:
                raise OperationFailed(NO_GRPC)
            if not data:
                raise NotReached("it closed the connection")
            events = http.receive_data(data)
            foreign = not events and foreign is not False
            for event in events:
                handle_event(http, event, calls)
    except h2.exceptions.ProtocolError as error:
        raise OperationFailed(NO_GRPC) from error
    return [call.reply for call in calls.values() if call.reply is not None]


def request_headers(path: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
        ("content-type", "application/grpc"), ("te", "trailers"),
    ]  # fmt: skip


def handle_event(
    http: h2.connection.H2Connection, event: h2.events.Event, calls: dict[int, PendingCall]
) -> None:
    match event:
        case h2.events.ResponseReceived(stream_id=int(stream), headers=headers) if stream in calls:
            calls[stream].headers.update(dict(headers or ()))
        case h2.events.TrailersReceived(stream_id=int(stream), headers=headers) if stream in calls:
            calls[stream].headers.update(dict(headers or ()))
        case h2.events.DataReceived(stream_id=int(stream), data=data) if stream in calls:
            http.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            calls[stream].body += data or b""
            if len(calls[stream].body) > REPLY_BYTES_MAX:
                raise OperationFailed(TOO_LONG)
        case h2.events.StreamEnded(stream_id=int(stream)) if stream in calls:
            calls[stream].reply = parse_reply(calls[stream])
        case h2.events.StreamReset() | h2.events.ConnectionTerminated():
            raise NotReached("it ended the call")


def parse_reply(call: PendingCall) -> GrpcReply:
    """Return the message of a unary call; OperationFailed if there is not exactly one."""
    status = call.headers.get(b"grpc-status", b"")
    if not status.isdigit() or len(status) > 3:
        raise OperationFailed(NO_GRPC)
    if int(status):
        said = unquote(call.headers.get(b"grpc-message", b"").decode("latin-1"))[:MESSAGE_MAX]
        return GrpcReply(status=int(status), message=said)
    if len(call.body) < 5 or call.body[0] or len(call.body) - 5 != int.from_bytes(call.body[1:5]):
        raise OperationFailed("its answer is not one message")
    return GrpcReply(content=bytes(call.body[5:]))
