"""A minimal HTTP/1.1 server for programs inside a host."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus

import httptools

from tpuherd_sim.model.http_types import Request, Response

BODY_BYTES_MAX = 1 << 20

RequestHandler = Callable[[Request], Awaitable[Response]]


class HttpConnection(asyncio.Protocol):
    """One connection; requests are answered in order."""

    def __init__(self, answer: RequestHandler, now: Callable[[], float]) -> None:
        self.answer = answer
        self.now = now  #: for the Date header
        self.over = asyncio.Event()
        self.parser = httptools.HttpRequestParser(self)
        self.waiting: asyncio.Queue[tuple[Request, bool]] = asyncio.Queue()
        self.url = b""
        self.headers: dict[str, str] = {}
        self.body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.transport.close()
        except httptools.HttpParserError:
            self.write_response(Response(status=400, body=b"this is no HTTP request\n"), keep=False)
            self.transport.close()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = {}
        self.body.clear()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body += body
        if len(self.body) > BODY_BYTES_MAX:
            self.transport.abort()

    def on_message_complete(self) -> None:
        path, _, query = self.url.decode("latin-1").partition("?")
        if path.startswith("http://"):  # clients that use us as a proxy send the full URL
            path = "/" + path.removeprefix("http://").partition("/")[2]
        request = Request(
            method=self.parser.get_method().decode(),
            path=path,
            query=query,
            headers=self.headers,
            body=bytes(self.body),
        )
        self.waiting.put_nowait((request, self.parser.should_keep_alive()))

    async def serve_requests(self) -> None:
        """Answer requests until one side closes the connection."""
        keep = True
        while keep:
            request, keep = await self.waiting.get()
            response = await self.answer(request)
            self.write_response(response, keep=keep, with_body=request.method != "HEAD")
        self.transport.close()

    def write_response(self, response: Response, *, keep: bool, with_body: bool = True) -> None:
        headers = {
            **dict(response.headers),
            "Date": formatdate(self.now(), usegmt=True),
            "Content-Length": str(len(response.body)),
            **({} if keep else {"Connection": "close"}),
        }
        head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in headers.items()
        )
        body = response.body if with_body else b""
        self.transport.write(head.encode("latin-1") + b"\r\n" + body)


async def serve_http(end: socket.socket, answer: RequestHandler, now: Callable[[], float]) -> None:
    """Serve one connection until it closes."""
    loop = asyncio.get_running_loop()
    _, conversation = await loop.connect_accepted_socket(lambda: HttpConnection(answer, now), end)
    answering = asyncio.ensure_future(conversation.serve_requests())
    leaving = asyncio.ensure_future(conversation.over.wait())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
            await leaving
    finally:
        answering.cancel()
        leaving.cancel()
        conversation.transport.abort()
