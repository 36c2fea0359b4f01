"""A thin client of the cloud's REST interfaces: one try, JSON both ways, clear errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.cloud.error_reasons import refusal_advice
from tpuherd.cloud.error_replies import BETWEEN, MalformedAnswer
from tpuherd.cloud.lazy_http import LazyHttpClient, httpx2, import_lazily
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
from tpuherd.settings.endpoints import LOG_IN, ServiceUrls

if TYPE_CHECKING:
    import msgspec
else:
    msgspec = import_lazily("msgspec")

Json = dict[str, Any]
TIMEOUT_S = 30.0  #: for the next bytes
CALL_S = 120.0  #: for all of an answer
ANSWER_MAX = 256 << 20


class CloudConflict(OperationFailed):
    """Somebody else changed it meanwhile, or it is busy: look again."""


class ErrorReply(Exception):
    """The cloud's own words: the cause of what is raised for them."""

    def __init__(self, status: int, content: object) -> None:
        super().__init__(f"HTTP status {status}")
        error = content.get("error") if isinstance(content, dict) else None
        self.status = status
        self.content: Mapping[str, Any] = error if isinstance(error, dict) else {}


class RequestAuth(Protocol):
    """Who may ask."""

    async def auth_headers(self) -> Mapping[str, str]:
        """What to put into each request."""
        ...

    def invalidate_headers(self, headers: Mapping[str, str]) -> bool:
        """The cloud does not know these; whether others may be had."""
        ...


class RestClient:
    """The connections to the cloud."""

    def __init__(
        self, client: LazyHttpClient | httpx2.AsyncClient, urls: ServiceUrls, bearer: RequestAuth
    ) -> None:
        self.client = client
        self.urls = urls
        self.bearer = bearer
        self.reads = 0  #: requests that only looked, so far

    async def call_tpu(
        self, method: str, path: str, body: Json | None = None, **query: str | int
    ) -> Json:
        """Cloud TPU: the path follows /v2/."""
        return await self._request_json(method, f"{self.urls.tpu}/v2/{path}", body, query)

    async def call_compute(
        self, method: str, path: str, body: Json | None = None, **query: str | int
    ) -> Json:
        """Compute: the path follows /compute/v1/."""
        return await self._request_json(
            method, f"{self.urls.compute}/compute/v1/{path}", body, query
        )

    async def read_storage(self, path: str) -> Json:
        """Cloud Storage, to look only: the path follows /storage/v1/."""
        return await self._request_json("GET", f"{self.urls.storage}/storage/v1/{path}", None, {})

    async def _request_json(
        self, method: str, url: str, body: Json | None, query: Mapping[str, str | int]
    ) -> Json:
        """One answer. A token that is not taken is renewed, once."""
        headers = await self.bearer.auth_headers()
        try:
            return await self._send_request(method, url, body, query, headers)
        except NotAllowed as error:
            said = error.__cause__
            if not (
                isinstance(said, ErrorReply)
                and said.status == 401
                and self.bearer.invalidate_headers(headers)
            ):
                raise
        return await self._send_request(method, url, body, query, await self.bearer.auth_headers())

    async def _send_request(
        self,
        method: str,
        url: str,
        body: Json | None,
        query: Mapping[str, str | int],
        headers: Mapping[str, str],
    ) -> Json:
        """One request, one answer."""
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
            raise NotReached(f"the cloud gave no answer in {TIMEOUT_S:g} s") from error
        except TimeoutError as error:
            raise NotReached(f"the cloud gave no whole answer in {CALL_S:g} s") from error
        except httpx2.HTTPError as error:
            kind = NotListening if isinstance(error, httpx2.ConnectError) else NotReached
            raise kind(
                f"the cloud at {service} can't be reached ({error})",
                hint="is the network up? A simulated world is started by `herd sim start`",
            ) from error


async def read_body(answer: httpx2.Response) -> bytes:
    """All of it, if it is not endless."""
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > ANSWER_MAX:
            most = f"{ANSWER_MAX >> 20} MB"
            raise MalformedAnswer(f"the cloud's answer is longer than {most}", hint=BETWEEN)
    return bytes(body)


def read_json(answer: httpx2.Response, body: bytes) -> Json:
    """The object that was answered. What is no JSON object is an error, whatever its status."""
    status, headers, url = answer.status_code, answer.headers, str(answer.url)
    service = url.partition("/v")[0]
    try:
        content = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        content = None
    if status >= 400:
        raise error_for_status(status, content, url) from ErrorReply(status, content)
    if not 200 <= status < 300:
        to = f" to {headers['location']}" if "location" in headers else ""
        raise MalformedAnswer(
            f"{service} answered with a redirect{to} (HTTP {status})", hint=BETWEEN
        )
    if not isinstance(content, dict):
        kind = headers.get("content-type", "").partition(";")[0] or "of no stated type"
        what = f"{len(body)} bytes, {kind}" if body else "an empty body"
        raise MalformedAnswer(f"{service} answered, but not with JSON ({what})", hint=BETWEEN)
    return content


def world_http_client(transport: httpx2.AsyncBaseTransport | None = None) -> httpx2.AsyncClient:
    """For a world: keeps connections, and asks no proxy. `transport`: to one in this process."""
    nobody = SSLContext(PROTOCOL_TLS_CLIENT)  # worlds speak plainly; to load whom to trust is slow
    return httpx2.AsyncClient(
        transport=transport, timeout=TIMEOUT_S, trust_env=False, verify=nobody
    )


def google_http_client() -> httpx2.AsyncClient:
    """For Google: by the proxies and certificates that the environment names."""
    return httpx2.AsyncClient(timeout=TIMEOUT_S)


def error_for_status(status: int, content: object, url: str = "") -> HerdError:
    """The cloud's refusal as one of our errors."""
    error = content.get("error") if isinstance(content, dict) else None
    said: Json = error if isinstance(error, dict) else {}
    sentence = said.get("message")
    sentence = str(sentence or f"the cloud answered with HTTP status {status}").rstrip(".")
    if status == 404:
        return NotFound(sentence)
    if status == 401:
        return NoLogin(sentence, hint=LOG_IN)
    if status == 403:
        return NotAllowed(sentence, hint=refusal_advice(said, url))
    if status in (409, 412):
        return CloudConflict(sentence)
    if status == 400:
        return InvalidInput(sentence)
    if status == 429:
        return OperationFailed(
            sentence, hint="the cloud limits how often it is asked: wait a minute"
        )
    return OperationFailed(sentence)
