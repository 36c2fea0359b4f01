"""Cloud Storage for programs on hosts: the objects of one bucket, by the standard library alone.

Each thread keeps its connection. A request is repeated, with growing pauses and jitter, until it is
answered or its time is over; of an object only what has not arrived yet is sent or read again.
"""

import json
import os
import random
import threading
import time
import urllib.request
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
)
from urllib.parse import quote, urlencode, urlsplit

GOOGLE = "https://storage.googleapis.com"
TOKEN_VARIABLE = "CLOUDSDK_AUTH_ACCESS_TOKEN"  #: of a user's own machine, as gcloud reads it
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
EARLY_S = 300.0  #: a token is renewed this long before it expires
SILENCE_S = 60.0  #: for how long a server may say nothing
TIME_S = 30.0  #: for how long a request is repeated, by default
PAUSE_S, PAUSE_S_MAX = 0.5, 8.0
PIECE = 1 << 20
SMALL = 8 << 20  #: up to here an object is written by one request
CHUNK = 16 << 20  #: of an object whose size is not known before its end
PARTIAL, RESUME = 206, 308  #: the status of a part of an object, and of an upload that goes on

NO_HEADERS: Mapping[str, str] = {}

Bytes = Union[bytes, memoryview]


class Unreachable(OSError):
    """The location cannot be read or written; the message says why."""


class TemporarilyUnreachable(Unreachable):
    """The location does not respond now, but may later."""


class ObjectExists(Unreachable):
    """An object of this name is there already."""


class Request(NamedTuple):
    """A request, which may be sent again."""

    method: str
    path: str
    pieces: Optional[Sequence[Bytes]] = None  #: the body
    headers: Mapping[str, str] = NO_HEADERS


class Answer(NamedTuple):
    """A server's answer that is not an error."""

    status: int
    headers: Mapping[str, str]  #: names in lower case
    content: bytes


class AccessToken:
    """The token of the VM's service account, or of a user's machine; an emulator needs none."""

    def __init__(self, environ: Mapping[str, str], *, needed: bool) -> None:
        metadata = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self.url = f"http://{metadata}{TOKEN}" if needed else ""
        self.given = environ.get(TOKEN_VARIABLE, "")
        self._token, self._until = "", 0.0

    def auth_headers(self, where: str) -> Dict[str, str]:
        if not self.url:
            return {}
        if not self.given and time.time() >= self._until:
            self._token, self._until = self._request(where)
        return {"Authorization": f"Bearer {self.given or self._token}"}

    def forget_token(self) -> None:
        """Ask for another one before the next request."""
        self._until = 0.0

    def _request(self, where: str) -> Tuple[str, float]:
        request = urllib.request.Request(self.url, headers={"Metadata-Flavor": "Google"})
        try:
            with urllib.request.urlopen(request, timeout=SILENCE_S) as answer:
                content = json.load(answer)
            lasts_s = float(content.get("expires_in", 0))
            return str(content["access_token"]), time.time() + lasts_s - EARLY_S
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            none = getattr(error, "code", None) == 404
            raise (Unreachable if none else TemporarilyUnreachable)(
                f"{where}: no access token from the metadata server ({error}); "
                "give the node a service account that may use the bucket, or set "
                f"{TOKEN_VARIABLE} outside of Google"
            ) from error


class CloudStorage:
    """The objects of a bucket of Cloud Storage, or of the emulator in STORAGE_EMULATOR_HOST."""

    def __init__(self, url: str, environ: Mapping[str, str], time_s: float = TIME_S) -> None:
        """`url` is gs://BUCKET, or a path in it for messages to name."""
        emulated = environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        if emulated and "//" not in emulated:
            emulated = f"http://{emulated}"
        self.base, self.url = emulated or GOOGLE, url
        self.bucket = url[len("gs://") :].partition("/")[0]
        self.token = AccessToken(environ, needed=not emulated)
        self.time_s, self._kept = time_s, threading.local()
        self._uploads = f"/upload/storage/v1/b/{self.bucket}/o"

    # ---- objects ----

    def list_objects(self, prefix: str, *fields: str) -> Iterator[Dict[str, Any]]:
        """Yield all objects with this prefix: their names and these fields."""
        asked = {"prefix": prefix, "fields": f"items({','.join(('name', *fields))}),nextPageToken"}
        page: Optional[str] = ""
        while page is not None:
            query = urlencode({**asked, "pageToken": page} if page else asked)
            answer = self._send(Request("GET", f"/storage/v1/b/{self.bucket}/o?{query}"))
            found = json.loads(answer.content)
            yield from found.get("items", ())
            page = found.get("nextPageToken")

    def read(self, name: str, first: int = 0, length: Optional[int] = None) -> bytes:
        """Return an object or a part of it; FileNotFoundError."""
        return b"".join(self.iter_pieces(name, first, length))

    def iter_pieces(
        self, name: str, first: int = 0, length: Optional[int] = None
    ) -> Iterator[bytes]:
        """Yield the bytes of one version of an object; FileNotFoundError."""
        path, at, tries = f"{self._path(name)}?alt=media", first, Tries(self.time_s)
        end = None if length is None else first + length
        version = ""
        while end is None or at < end:
            part = {"Range": f"bytes={at}-{'' if end is None else end - 1}"} if at or end else {}
            try:
                response = self._open(Request("GET", path + version, headers=part))
                if at and response.status != PARTIAL:
                    raise Unreachable(f"{self.url}: the server sends whole objects only")
                generation = response.getheader("x-goog-generation")
                version = f"&generation={generation}" if generation else ""
                while True:
                    piece = response.read(PIECE)
                    if not piece:
                        break
                    at += len(piece)
                    tries.begin_again()
                    yield piece
                if response.length:
                    raise TemporarilyUnreachable(f"{self.url}: the connection ended too early")
                return
            except (TemporarilyUnreachable, OSError, HTTPException) as error:
                tries.wait(self._explain(error))

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        """Write an object, replacing one of that name."""
        size = sum(len(piece) for piece in pieces)
        if size > SMALL:
            self._upload_chunks(name, iter([pieces]), size)
            return
        query = urlencode({"uploadType": "media", "name": name})
        self._send(Request("POST", f"{self._uploads}?{query}", pieces))

    def write_new(self, name: str, pieces: Sequence[Bytes]) -> bool:
        """Write an object unless there is one of that name; return whether it has this content
        now. So a write whose answer was lost counts, and two that agree both do."""
        query = urlencode({"uploadType": "media", "name": name, "ifGenerationMatch": 0})
        try:
            self._send(Request("POST", f"{self._uploads}?{query}", pieces))
        except ObjectExists:
            return self.read(name) == b"".join(pieces)
        return True

    def write_stream(self, name: str, blocks: Iterable[bytes], chunk: int = CHUNK) -> None:
        """Write an object whose size is not known yet, replacing one of that name; up to two
        chunks of it are in memory."""
        self._upload_chunks(name, join_blocks(blocks, chunk), None)

    def remove_object(self, name: str) -> None:
        """Remove an object; FileNotFoundError."""
        self._send(Request("DELETE", self._path(name)))

    # ---- uploads that continue where they were cut off ----

    def _upload_chunks(
        self, name: str, chunks: Iterator[Sequence[Bytes]], size: Optional[int]
    ) -> None:
        query = urlencode({"uploadType": "resumable", "name": name})
        kind = {"X-Upload-Content-Type": "application/octet-stream"}
        begun = self._send(Request("POST", f"{self._uploads}?{query}", (), kind))
        target = urlsplit(begun.headers.get("location", ""))
        session, at, chunk = f"{target.path}?{target.query}", 0, next(chunks, ())
        while True:
            after = next(chunks, None)
            end = at + sum(len(piece) for piece in chunk)
            total = end if size is None and after is None else size
            self._send_chunk(session, chunk, at, total)
            if after is None:
                return
            at, chunk = end, after

    def _send_chunk(
        self, session: str, pieces: Sequence[Bytes], at: int, total: Optional[int]
    ) -> None:
        """Send bytes from `at` on until the server has them all."""
        end, of = at + sum(len(piece) for piece in pieces), "*" if total is None else total
        have, tries = at, Tries(self.time_s)
        while True:
            rest = skip_bytes(pieces, have - at)
            span = f"{have}-{end - 1}" if have < end else "*"
            part = Request("PUT", session, rest, {"Content-Range": f"bytes {span}/{of}"})
            try:
                known = received_bytes(self._send_once(part))
            except TemporarilyUnreachable as error:
                tries.wait(error)
                state = Request("PUT", session, (), {"Content-Range": f"bytes */{of}"})
                known = received_bytes(self._send(state))
            if known is None or (total is None and known >= end):
                return
            if not at <= known <= end:
                raise Unreachable(f"{self.url}: the server has lost a part of an upload")
            if known > have:
                tries.begin_again()
            elif rest:
                tries.wait(TemporarilyUnreachable(f"{self.url}: the server takes no more bytes"))
            have = known

    # ---- requests ----

    def _path(self, name: str) -> str:
        return f"/storage/v1/b/{self.bucket}/o/{quote(name, safe='')}"

    def _send(self, request: Request) -> Answer:
        """Send a request until it is answered."""
        tries = Tries(self.time_s)
        while True:
            try:
                return self._send_once(request)
            except TemporarilyUnreachable as error:
                tries.wait(error)

    def _send_once(self, request: Request) -> Answer:
        try:
            response = self._open(request)
            content = response.read()
        except (OSError, HTTPException) as error:
            raise self._explain(error) from None
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, content)

    def _open(self, request: Request) -> HTTPResponse:
        """Return an answer that is not an error, its content unread."""
        headers = {**request.headers, **self.token.auth_headers(self.url)}
        if request.pieces is not None:
            headers["Content-Length"] = str(sum(len(piece) for piece in request.pieces))
            headers["Content-Type"] = "application/octet-stream"
        connection, is_new = self._connection()
        try:
            response = get_response(connection, request, headers)
        except (OSError, HTTPException):
            self.close()
            if is_new or request.method == "PUT":
                raise  # of a part of an upload, the server may have some
            # A server ends connections that were idle: the first request on one may find it closed.
            response = get_response(self._connection()[0], request, headers)
        if response.status not in (200, 204, PARTIAL, RESUME):
            self._refuse(response, request.path)
        return response

    def _connection(self) -> Tuple[HTTPConnection, bool]:
        """Return this thread's connection, and whether it is new; a forked child makes its own."""
        kept: Optional[KeptConnection] = getattr(self._kept, "connection", None)
        if kept is not None and kept.process == os.getpid():
            return kept.connection, False
        self._kept.connection = kept = KeptConnection(open_connection(self.base))
        return kept.connection, True

    def close(self) -> None:
        """Close this thread's connection; the next request opens another."""
        self._kept.connection = None

    def _refuse(self, response: HTTPResponse, path: str) -> NoReturn:
        body, status = response.read(), response.status
        try:
            sentence = str(json.loads(body)["error"]["message"])
        except (ValueError, LookupError, TypeError):
            sentence = body.decode("utf-8", "replace").strip()[:200] or response.reason
        if status == 404 and "/o/" in path:
            raise FileNotFoundError(f"{self.url}: {sentence}")
        if status == 416:
            raise FileNotFoundError(f"{self.url}: shorter than it should be")
        failure = f"{self.url}: {sentence} (HTTP {status})"
        if status == 401 and not self.token.given:
            self.token.forget_token()
            raise TemporarilyUnreachable(failure)
        if status == 412:
            raise ObjectExists(failure)
        if status in (408, 429) or status >= 500:
            raise TemporarilyUnreachable(failure)
        raise Unreachable(failure)

    def _explain(self, error: Exception) -> TemporarilyUnreachable:
        """Return a failure that may pass; raise all others."""
        if isinstance(error, TemporarilyUnreachable):
            return error
        if isinstance(error, (Unreachable, FileNotFoundError)):
            raise error
        self.close()
        why = str(error) or type(error).__name__
        return TemporarilyUnreachable(f"{self.url} can't be reached: {why}")


class KeptConnection:
    """A connection that is closed with its thread, unless a forked child only inherited it."""

    def __init__(self, connection: HTTPConnection) -> None:
        self.connection, self.process = connection, os.getpid()

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.connection.close()


class Tries:
    """The tries of one request: how long it is repeated, and the pause before the next one."""

    def __init__(self, time_s: float) -> None:
        self._time_s = time_s
        self.begin_again()

    def begin_again(self) -> None:
        self._until, self._pause_s = time.monotonic() + self._time_s, PAUSE_S

    def wait(self, error: TemporarilyUnreachable) -> None:
        """Wait before the next try; raise the error if the time is over."""
        pause_s = self._pause_s * random.uniform(0.5, 1.0)  # hosts must not return together
        if time.monotonic() + pause_s >= self._until:
            raise error
        time.sleep(pause_s)
        self._pause_s = min(PAUSE_S_MAX, self._pause_s * 2)


def open_connection(base: str) -> HTTPConnection:
    """Return a connection, made at its first request, through the user's proxy if any."""
    url = urlsplit(base)
    if url.scheme != "https":
        return HTTPConnection(url.netloc, timeout=SILENCE_S)
    proxy = urllib.request.getproxies().get("https", "")
    if not proxy or urllib.request.proxy_bypass(url.netloc):
        return HTTPSConnection(url.netloc, timeout=SILENCE_S)
    there = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = HTTPSConnection(there.hostname or "", there.port, timeout=SILENCE_S)
    connection.set_tunnel(url.netloc)
    return connection


def get_response(
    connection: HTTPConnection, request: Request, headers: Dict[str, str]
) -> HTTPResponse:
    body = None if request.pieces is None else iter(request.pieces)
    connection.request(request.method, request.path, body=body, headers=headers)
    return connection.getresponse()


def received_bytes(answer: Answer) -> Optional[int]:
    """Return how many bytes of an upload arrived; None if the object is complete."""
    if answer.status != RESUME:
        return None
    last = answer.headers.get("range", "").rpartition("-")[2]
    return int(last) + 1 if last.isdigit() else 0


def skip_bytes(pieces: Sequence[Bytes], many: int) -> List[memoryview]:
    """Return what follows the first bytes of these pieces."""
    rest = []
    for piece in pieces:
        rest.append(memoryview(piece)[many:])
        many = max(0, many - len(piece))
    return [piece for piece in rest if len(piece)]


def join_blocks(blocks: Iterable[bytes], full: int = CHUNK) -> Iterator[List[Bytes]]:
    """Yield full chunks of so many bytes, the last one of what is left."""
    chunk: List[Bytes] = []
    size = 0
    for block in blocks:
        view = memoryview(block)
        while size + len(view) > full:
            chunk.append(view[: full - size])
            view = view[full - size :]
            yield chunk
            chunk, size = [], 0
        chunk.append(view)
        size += len(view)
    yield chunk
