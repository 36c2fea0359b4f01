"""A thin client of the cloud's REST APIs: one try, JSON both ways, clear errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.cloud.error_reasons import limit_advice, refusal_advice
from tpuherd.cloud.error_replies import BETWEEN, MESSAGE_MAX, MalformedAnswer
from tpuherd.cloud.lazy_http import LazyHttpClient, httpx2
from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NoLogin,
    NotAllowed,
    NotFound,
    NotListening,
    NotReached,
    OperationFailed,
)
from tpuherd.lazy_modules import import_lazily
from tpuherd.settings.endpoints import LOG_IN, ServiceUrls

if TYPE_CHECKING:
    import msgspec
else:
    msgspec = import_lazily("msgspec")

Json = dict[str, Any]
TIMEOUT_S = 30.0  #: to receive the next bytes
CALL_S = 120.0  #: for a whole reply
ANSWER_MAX = 256 << 20
LOCATION_MAX = 300  #: characters of a redirect's target that are shown


class CloudConflict(OperationFailed):
    """Another client changed it meanwhile, or it is busy: read it again."""


class ConnectionCut(NotReached):
    """The connection broke before the whole reply was there: another try may help."""


class RequestAuth(Protocol):
    """Where the headers that authenticate requests come from."""

    async def auth_headers(self) -> Mapping[str, str]:
        """The headers for each request."""
        ...

    def invalidate_headers(self, headers: Mapping[str, str]) -> bool:
        """The cloud rejected these; whether new ones can be had."""
        ...


QueryValue = str | int | list[str]  #: a list repeats the parameter


class RestClient:
    """Sends requests to the cloud's services."""

    def __init__(
        self,
        client: LazyHttpClient | httpx2.AsyncClient,
        urls: ServiceUrls,
        bearer: RequestAuth,
    ) -> None:
        self.client = client
        self.urls = urls
        self.bearer = bearer
        self.reads = 0  #: number of GET requests so far

    async def call_tpu(
        self, method: str, path: str, body: Json | None = None, **query: str | int
    ) -> Json:
        """Call Cloud TPU; the path follows /v2/."""
        return await self._request_json(method, f"{self.urls.tpu}/v2/{path}", body, query)

    async def call_compute(
        self, method: str, path: str, body: Json | None = None, **query: str | int
    ) -> Json:
        """Call Compute; the path follows /compute/v1/."""
        return await self._request_json(
            method, f"{self.urls.compute}/compute/v1/{path}", body, query
        )

    async def call_storage(
        self, method: str, path: str, body: Json | None = None, **query: QueryValue
    ) -> Json:
        """Call Cloud Storage; the path follows /storage/v1/."""
        return await self._request_json(
            method, f"{self.urls.storage}/storage/v1/{path}", body, query
        )

    async def call_iam(self, method: str, path: str, body: Json | None = None) -> Json:
        """Call IAM; the path follows /v1/."""
        return await self._request_json(method, f"{self.urls.iam}/v1/{path}", body, {})

    async def read_usage(self, path: str, **query: QueryValue) -> Json:
        """Read from Service Usage; the path follows /v1beta1/."""
        return await self._request_json("GET", f"{self.urls.usage}/v1beta1/{path}", None, query)

    async def call_usage(self, method: str, path: str, body: Json | None = None) -> Json:
        """Call Service Usage; the path begins with the version."""
        return await self._request_json(method, f"{self.urls.usage}/{path}", body, {})

    async def call_projects(self, method: str, path: str, body: Json | None = None) -> Json:
        """Call Resource Manager; the path follows /v1/."""
        return await self._request_json(method, f"{self.urls.projects}/v1/{path}", body, {})

    async def call_os_login(self, method: str, path: str, body: Json | None = None) -> Json:
        """Call OS Login; the path follows /v1/."""
        return await self._request_json(method, f"{self.urls.os_login}/v1/{path}", body, {})

    async def _request_json(
        self, method: str, url: str, body: Json | None, query: Mapping[str, QueryValue]
    ) -> Json:
        """One call; if the token is rejected, it is renewed and the call repeated once."""
        headers = await self.bearer.auth_headers()
        try:
            return await self._send_request(method, url, body, query, headers)
        except NotAllowed as error:
            if error.status != 401 or not self.bearer.invalidate_headers(headers):
                raise
        return await self._send_request(method, url, body, query, await self.bearer.auth_headers())

    async def _send_request(
        self,
        method: str,
        url: str,
        body: Json | None,
        query: Mapping[str, QueryValue],
        headers: Mapping[str, str],
    ) -> Json:
        self.reads += method == "GET"
        params = {name: word for name, word in query.items() if word != ""}
        service = url.partition("/v")[0]
        try:
            async with (
                asyncio.timeout(CALL_S),
                self.client.stream(
                    method, url, json=body, params=params, headers=dict(headers)
                ) as answer,
            ):
                return read_json(answer, await read_body(answer))
        except httpx2.TimeoutException as error:
            raise NotReached(f"the cloud did not answer within {TIMEOUT_S:g} s") from error
        except TimeoutError as error:
            raise NotReached(f"the cloud's reply was not complete within {CALL_S:g} s") from error
        except httpx2.InvalidURL as error:  # made of a name in an earlier answer
            raise MalformedAnswer(f"{service} gave a name that no URL can have: {error}") from error
        except httpx2.HTTPError as error:
            kind = NotListening if isinstance(error, httpx2.ConnectError) else ConnectionCut
            raise kind(
                f"the cloud at {service} can't be reached ({error})",
                hint="is the network up? For a simulated world: herd sim start",
            ) from error


async def read_body(answer: httpx2.Response) -> bytes:
    """The whole body; raises if it is longer than ANSWER_MAX."""
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > ANSWER_MAX:
            most = f"{ANSWER_MAX >> 20} MB"
            raise MalformedAnswer(f"the cloud's reply is longer than {most}", hint=BETWEEN)
    return bytes(body)


def read_json(answer: httpx2.Response, body: bytes) -> Json:
    """The reply's JSON object; raises for error statuses and for everything else."""
    status, headers, url = answer.status_code, answer.headers, str(answer.url)
    service = url.partition("/v")[0]
    try:
        content = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        content = None
    if status >= 400:
        raise error_for_status(status, content, url)
    if not 200 <= status < 300:
        to = f" to {headers['location'][:LOCATION_MAX]}" if "location" in headers else ""
        raise MalformedAnswer(
            f"{service} answered with a redirect{to} (HTTP {status})", hint=BETWEEN
        )
    if not isinstance(content, dict):
        kind = headers.get("content-type", "").partition(";")[0] or "of no stated type"
        what = f"{len(body)} bytes, {kind}" if body else "an empty body"
        raise MalformedAnswer(f"{service} answered, but not with JSON ({what})", hint=BETWEEN)
    return content


def world_http_client(transport: httpx2.AsyncBaseTransport | None = None) -> httpx2.AsyncClient:
    """A client for a world, without proxies; `transport` leads to a world in this process."""
    no_tls = SSLContext(PROTOCOL_TLS_CLIENT)  # worlds use plain HTTP; loading certificates is slow
    return httpx2.AsyncClient(
        transport=transport, timeout=TIMEOUT_S, trust_env=False, verify=no_tls
    )


def google_http_client() -> httpx2.AsyncClient:
    """A client for Google, with the proxies and certificates of the environment."""
    return httpx2.AsyncClient(timeout=TIMEOUT_S)


def error_for_status(status: int, content: object, url: str = "") -> HerdError:
    """The cloud's error reply as one of our errors."""
    error = content.get("error") if isinstance(content, dict) else None
    reply: Json = error if isinstance(error, dict) else {}
    sentence = reply.get("message")
    sentence = str(sentence or f"the cloud answered with HTTP status {status}").rstrip(".")
    found = described_error(status, sentence[:MESSAGE_MAX], reply, url)
    return found.carry_reply(status, reply)


def described_error(status: int, sentence: str, reply: Json, url: str) -> HerdError:
    if status == 404:
        return NotFound(sentence)
    if status == 401:
        return NoLogin(sentence, hint=LOG_IN)
    if status == 403:
        return NotAllowed(sentence, hint=refusal_advice(reply, url))
    if status in (409, 412):
        return CloudConflict(sentence)
    if status == 400:
        return InvalidInput(sentence)
    if status == 429:
        return OperationFailed(sentence, hint=limit_advice(sentence))
    return OperationFailed(sentence)
