"""The world as an ASGI app: parses requests, passes them to the world, writes its responses."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from email.utils import formatdate
from typing import Any

from tpuherd.clock import Clock
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Request, Response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The server's extension that cuts the connection, for a lost response.
CUT = "tpuherd.cut"
BODY_BYTES_MAX = 16 << 20
#: Uploads to buckets may be longer than other bodies.
UPLOADS, UPLOAD_BYTES_MAX = ("/upload/", "/resumable/"), 1 << 30
JSON_TYPE = (b"content-type", b"application/json; charset=UTF-8")
#: Credential headers, which are dropped here: they reach neither the model nor the disk.
SECRET = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"x-goog-api-key"})
#: The world marks the requests of its hosts with this; a client can't pretend to be one.
MARK = HOST_HEADER.encode()

#: Answers requests that are not the model's: the world's own page, its metadata for sign-ins,
#: bucket objects. None leaves the request to the model.
RouteHandler = Callable[[Request], Awaitable[Response | None]]


class LostAnswer(ConnectionResetError):
    """Raised through the app for a lost response, because in-process clients have no connection to
    cut.
    """


class ClientGone(Exception):
    pass


def create_app(
    live_world: LiveWorld, clock: Clock, sides: Mapping[str, RouteHandler] | None = None
) -> App:
    """Return the app of one world.

    `sides` handle requests by path or path prefix before the model does.
    """
    fronts = dict(sides or {})
    trees = tuple(
        (path, side) for path, side in fronts.items() if path.endswith("/") and path != "/"
    )

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            request = await read_request(scope, receive)
        except ClientGone:
            return
        response = await aside(request) or live_world.handle_request(request)
        if response.delay_s > 0:
            await clock.sleep(response.delay_s)
        if response.lost:
            await cut_connection(scope, receive)
        else:
            await write_response(send, response, live_world.current_time())

    async def aside(request: Request) -> Response | None:
        if len(request.body) > max_body_bytes(request.path):
            return Response(status=413, body=b'{"error":{"code":413,"message":"too long"}}')
        side = fronts.get(request.path)
        for beginning, whole in trees:
            if request.path.startswith(beginning):
                side = whole
        return await side(request) if side else None

    return answer


async def read_request(scope: Scope, receive: Receive) -> Request:
    """Return the request; a body that is too long is truncated."""
    body = bytearray()
    longest = max_body_bytes(scope["raw_path"].decode("latin-1"))
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if len(body) <= longest:
            body += message.get("body", b"")
        more = message.get("more_body", False)
    return Request(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=read_headers(scope),
        body=bytes(body),
    )


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers in lower case, without credentials."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name not in SECRET and name != MARK
    }


def max_body_bytes(path: str) -> int:
    return UPLOAD_BYTES_MAX if path.startswith(UPLOADS) else BODY_BYTES_MAX


async def write_response(send: Send, response: Response, now: float) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers]
    if not any(name == b"content-type" for name, _ in headers):
        headers.append(JSON_TYPE)
    headers.append((b"content-length", b"%d" % len(response.body)))
    headers.append((b"date", formatdate(now, usegmt=True).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def cut_connection(scope: Scope, receive: Receive) -> None:
    """Cut the connection without a response."""
    abort = scope.get("extensions", {}).get(CUT)
    if abort is None:
        raise LostAnswer("the connection closed before a response arrived")
    abort()
    while (await receive())["type"] != "http.disconnect":
        pass
