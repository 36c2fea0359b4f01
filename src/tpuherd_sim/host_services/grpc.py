"""A minimal gRPC server for libtpu's metrics: unary calls over plain HTTP/2."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tpuherd_sim.host_services.accept import close_writer

REQUEST_BYTES_MAX = 1 << 16
OK, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, UNAVAILABLE = 0, 3, 5, 12, 14

Methods = Mapping[str, Callable[[bytes], Awaitable[bytes]]]


class GrpcError(Exception):
    """A failed call with its gRPC status."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class GrpcConnection:
    def __init__(self, methods: Methods) -> None:
        self.methods = methods
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self.http = h2.connection.H2Connection(config)
        self.paths: dict[int, str] = {}
        self.bodies: dict[int, bytearray] = {}
        self.unsent: dict[int, bytes] = {}

    async def serve_calls(self, end: socket.socket) -> None:
        """Answer calls until the client disconnects."""
        reader, writer = await asyncio.open_connection(sock=end)
        try:
            self.http.initiate_connection()
            writer.write(self.http.data_to_send())
            while data := await reader.read(1 << 16):
                for event in self.http.receive_data(data):
                    await self.handle_event(event)
                writer.write(self.http.data_to_send())
                await writer.drain()
        except h2.exceptions.ProtocolError:
            writer.write(self.http.data_to_send())
        finally:
            await close_writer(writer)

    async def handle_event(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived(stream_id=int(stream), headers=headers):
                self.paths[stream] = dict(headers or ()).get(b":path", b"").decode("latin-1")
                self.bodies[stream] = bytearray()
            case h2.events.DataReceived(stream_id=int(stream), data=data):
                self.http.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                body = self.bodies.get(stream, bytearray())
                body += data or b""
                if len(body) > REQUEST_BYTES_MAX:
                    self.bodies.pop(stream, None)
                    self.http.reset_stream(stream)
            case h2.events.StreamEnded(stream_id=int(stream)) if stream in self.bodies:
                await self.answer_call(stream)
            case h2.events.StreamReset(stream_id=int(stream)):
                self.bodies.pop(stream, None)
                self.unsent.pop(stream, None)
            case h2.events.WindowUpdated():
                for stream in list(self.unsent):
                    self.send_pending(stream)

    async def answer_call(self, stream: int) -> None:
        body = bytes(self.bodies.pop(stream))
        head = [(":status", "200"), ("content-type", "application/grpc")]
        try:
            method = self.methods.get(self.paths.pop(stream))
            if method is None:
                raise GrpcError(UNIMPLEMENTED, "no such method")
            if len(body) < 5 or body[0]:
                raise GrpcError(INVALID_ARGUMENT, "one message, not compressed")
            reply = await method(body[5:])
        except GrpcError as status:
            trailers = [("grpc-status", str(status.code)), ("grpc-message", quote(str(status)))]
            self.http.send_headers(stream, [*head, *trailers], end_stream=True)
            return
        self.http.send_headers(stream, head)
        self.unsent[stream] = struct.pack(">BI", 0, len(reply)) + reply
        self.send_pending(stream)

    def send_pending(self, stream: int) -> None:
        """Send as much of the answer as the flow control allows, and the trailers after the last
        byte.
        """
        left = self.unsent[stream]
        while left:
            most = min(
                self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size
            )
            if not most:
                self.unsent[stream] = left
                return
            self.http.send_data(stream, left[:most])
            left = left[most:]
        del self.unsent[stream]
        self.http.send_headers(stream, [("grpc-status", str(OK))], end_stream=True)
