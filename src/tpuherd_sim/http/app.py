"""The world as an ASGI app: parses requests, passes them to the world, writes its responses."""

import contextlib
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from tpuherd.clock import Clock
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.google_apis.uploads import CONTENT_HEADER
from tpuherd_sim.http.object_contents import ObjectContents, carries_content
from tpuherd_sim.live_world import LiveWorld, journal_full_response
from tpuherd_sim.model.http_types import ApiError, Request, Response, google_host
from tpuherd_sim.tpu.errors import render_error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The server's extension that cuts the connection, for a lost response.
CUT = "tpuherd.cut"
BODY_BYTES_MAX = 16 << 20  #: of others than the contents of objects
JSON_TYPE = (b"content-type", b"application/json; charset=UTF-8")
#: Credential headers, which are dropped here: they reach neither the model nor the disk.
SECRET = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"x-goog-api-key"})
SECRET_LINES = re.compile(rb"(?im)^(?:%s)[ \t]*:.*(?:\n[ \t].*)*\n?" % b"|".join(sorted(SECRET)))
#: By these the world itself says whose a request is and where its content is; clients can't.
MARKS = frozenset((HOST_HEADER.encode(), CONTENT_HEADER.encode()))

#: Answers requests that are not the model's: the world's own page, its metadata for sign-ins.
#: None leaves the request to the model.
RouteHandler = Callable[[Request], Awaitable[Response | None]]


class LostAnswer(ConnectionResetError):
    """Raised through the app for a lost response, because in-process clients have no connection to
    cut.
    """


class ClientGone(Exception):
    pass


def create_app(
    live_world: LiveWorld,
    clock: Clock,
    sides: Mapping[str, RouteHandler] | None = None,
    contents: ObjectContents | None = None,
    caller: Mapping[str, str] | None = None,
) -> App:
    """Return the app of one world.

    `sides` handle requests by path or path prefix before the model does. `contents` has the bytes
    of objects; `caller` is added to the headers of all requests.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        head = read_head(scope, caller or {})
        try:
            request, response = await read_request(head, receive, contents)
        except ClientGone:
            return
        if response is None:
            response = await aside(request) or live_world.handle_request(request)
        if contents is not None:
            contents.delete_freed(request)
        if response.delay_s > 0:
            await clock.sleep(response.delay_s)
        if response.lost:
            await cut_connection(scope, receive)
        else:
            stream = contents.read_parts(response.parts) if contents is not None else ()
            content = () if scope["method"] == "HEAD" else stream
            await write_response(send, response, live_world.current_time(), content)

    async def aside(request: Request) -> Response | None:
        if len(request.body) > BODY_BYTES_MAX:
            return Response(status=413, body=b'{"error":{"code":413,"message":"too long"}}')
        side = find_side(sides or {}, request)
        return await side(request) if side else None

    return answer


def find_side(sides: Mapping[str, RouteHandler], request: Request) -> RouteHandler | None:
    """Return what answers a path, or all below it; Google's hosts have the greeting only."""
    path, greeting = request.path, "/"
    if google_host(request) and path != greeting:
        return None
    trees = [tree for tree in sides if tree.endswith("/") and tree != greeting]
    return sides.get(next(filter(path.startswith, trees), path))


def read_head(scope: Scope, caller: Mapping[str, str]) -> Request:
    """Return a request without its body."""
    return Request(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers={**read_headers(scope), **caller},
    )


async def read_request(
    head: Request, receive: Receive, contents: ObjectContents | None
) -> tuple[Request, Response | None]:
    """Return the request, and the response if it is refused already.

    The content of an object goes to a file, another body that is too long is truncated.
    """
    if contents is not None:
        upload = contents.take_request(head)
        if carries_content(upload):
            try:
                return await contents.receive_content(upload, body_chunks(receive)), None
            except ApiError as refused:
                return upload, render_error(refused, upload.path.split("/")[1])
            except OSError as error:
                return upload, journal_full_response(error)
    body = bytearray()
    async for chunk in body_chunks(receive):
        if len(body) <= BODY_BYTES_MAX:
            body += chunk
    request = unpack_body(replace(head, body=bytes(body)))
    return request if contents is None else contents.take_request(request), None


def unpack_body(request: Request) -> Request:
    """Unpack a body in gzip, as far as a body may be long, and drop credentials from a batch."""
    body = request.body
    if request.headers.get("content-encoding") == "gzip":
        with contextlib.suppress(zlib.error):
            body = zlib.decompressobj(wbits=31).decompress(body, BODY_BYTES_MAX + 1)
    if request.headers.get("content-type", "").startswith("multipart/mixed"):
        body = SECRET_LINES.sub(b"", body)
    return replace(request, body=body)


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        yield message.get("body", b"")
        more = message.get("more_body", False)


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers in lower case, without credentials."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name not in SECRET and name not in MARKS
    }


async def write_response(
    send: Send, response: Response, now: float, content: Iterable[bytes] = ()
) -> None:
    """Send a response, and after its body the content of objects."""
    length = len(response.body) + sum(part.size for part in response.parts)
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers]
    if not any(name == b"content-type" for name, _ in headers):
        headers.append(JSON_TYPE)
    headers.append((b"content-length", b"%d" % length))
    headers.append((b"date", formatdate(now, usegmt=True).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    for chunk in content:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": response.body})


async def cut_connection(scope: Scope, receive: Receive) -> None:
    """Cut the connection without a response."""
    abort = scope.get("extensions", {}).get(CUT)
    if abort is None:
        raise LostAnswer("the connection closed before a response arrived")
    abort()
    while (await receive())["type"] != "http.disconnect":
        pass
