"""A stand-in of Google's Identity-Aware Proxy for TCP, as its open clients describe it."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

PROTOCOL = "relay.tunnel.cloudproxy.app"
TOKEN = "Bearer a-token"
FRAME_MAX = 16_384


@dataclass(kw_only=True)
class StandIn:
    """Which instances there are, and what clients did."""

    instances: Mapping[str, tuple[str, int]]  #: where their SSH servers are
    denied: set[str] = field(default_factory=set)
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    acknowledged: int = 0  #: the last number that a client sent
    sent: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)  #: a number was acknowledged

    def refuse(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse what Google refuses before there is a websocket."""
        if request.headers.get("Authorization") != TOKEN:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "no token\n")
        if urlsplit(request.path).path != "/v4/connect":
            return connection.respond(HTTPStatus.NOT_FOUND, "no such path\n")
        return None

    async def serve_client(self, websocket: ServerConnection) -> None:
        assert websocket.request is not None
        assert websocket.subprotocol == PROTOCOL
        assert websocket.request.headers["Origin"] == "bot:iap-tunneler"
        query = parse_qs(urlsplit(websocket.request.path).query)
        asked = {name: values[0] for name, values in query.items()}
        self.asked.append(asked)
        if asked["instance"] in self.denied:
            await websocket.close(4033, "not authorized")
            return
        if asked["instance"] not in self.instances:
            await websocket.close(4047, "failed to look up instance")
            return
        try:
            reader, writer = await asyncio.open_connection(*self.instances[asked["instance"]])
        except OSError:
            await websocket.close(4003, "failed to connect to backend")
            return
        session = b"session-1"
        await websocket.send(struct.pack(">HI", 1, len(session)) + session)
        down = asyncio.create_task(self.send_down(websocket, reader))
        try:
            await self.take_up(websocket, writer)
        except ConnectionClosed:
            pass
        finally:
            down.cancel()
            await asyncio.gather(down, return_exceptions=True)
            writer.close()

    async def send_down(self, websocket: ServerConnection, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(FRAME_MAX):
            self.sent += len(data)
            await websocket.send(struct.pack(">HI", 4, len(data)) + data)
        await websocket.close()

    async def take_up(self, websocket: ServerConnection, writer: asyncio.StreamWriter) -> None:
        received = 0
        while True:
            message = await websocket.recv()
            assert isinstance(message, bytes)
            tag, number = struct.unpack_from(">HI", message)
            if tag == 7:
                (self.acknowledged,) = struct.unpack(">Q", message[2:])
                self.heard.set()
                continue
            assert (tag, number) == (4, len(message) - 6)
            assert 0 < number <= FRAME_MAX
            writer.write(message[6:])
            await writer.drain()
            received += number
            await websocket.send(struct.pack(">HQ", 7, received))


@asynccontextmanager
async def stand_in(
    instances: Mapping[str, tuple[str, int]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[StandIn]:
    """Serve on loopback."""
    found = StandIn(instances=instances)
    server = await serve(
        found.serve_client,
        "127.0.0.1",
        0,
        subprotocols=[PROTOCOL],  # type: ignore[list-item]  # a NewType of str
        process_request=found.refuse,
        compression=None,
        ssl=tls,
    )
    async with server:
        port = next(iter(server.sockets)).getsockname()[1]
        found.url = f"{'wss' if tls else 'ws'}://127.0.0.1:{port}/v4"
        yield found
