"""Gets tokens through google-auth, for credentials files of every kind.

Importing it takes 0.2 s, so it is imported when a token is needed. google-auth blocks, so it runs
in a thread.
"""

import asyncio
import json
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC
from pathlib import Path
from typing import Any

from google.auth import exceptions, load_credentials_from_dict, transport
from google.auth.credentials import Credentials

from tpuherd.clock import WallClock
from tpuherd.cloud.lazy_http import LazyHttpClient, httpx2
from tpuherd.errors import NoLogin, NotReached
from tpuherd.settings.endpoints import LOG_IN, SCOPE, AuthToken

TIMEOUT_S = 30.0
#: Statuses that mean a refusal; 0: no request was sent, because the file is invalid.
REFUSED = frozenset({0, *range(400, 500)} - {408, 429})
FAILED = -1  #: instead of a status: Google did not answer
LIFE_S = 300.0  #: assumed for a token without an expiry time: no kind of token is valid for less


class TransportResponse(transport.Response):
    """An HTTP response with the attributes that google-auth reads."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.headers

    @property
    def data(self) -> bytes:
        return self._answer.content


class GoogleTransport(transport.Request):
    """Sends google-auth's requests through our HTTP client, with its proxies and certificates."""

    def __init__(self, client: LazyHttpClient | httpx2.AsyncClient) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.sending: Future[httpx2.Response] | None = None
        self.given_up = False
        self.status = 0  #: of the last response

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> TransportResponse:
        if self.given_up:
            raise exceptions.TransportError("the request was cancelled")
        asking = self.client.request(
            method, url, content=body, headers=dict(headers or {}), timeout=timeout or TIMEOUT_S
        )
        self.status = FAILED
        self.sending = asyncio.run_coroutine_threadsafe(asking, self.loop)
        try:
            answer = self.sending.result()
        except httpx2.HTTPError as error:
            raise exceptions.TransportError(f"{type(error).__name__}: {error}") from error
        if answer.status_code < 400 and (answer.is_redirect or is_page(answer)):
            host = httpx2.URL(url).host
            raise exceptions.TransportError(f"{host} answered with a page or a redirect")
        self.status = answer.status_code
        return TransportResponse(answer)

    def give_up(self) -> None:
        """Cancel the request under way and refuse new ones, so that the thread ends soon."""
        self.given_up = True
        if self.sending is not None:
            self.sending.cancel()


def is_page(answer: httpx2.Response) -> bool:
    """Whether a proxy or login page answered with HTML."""
    return answer.headers.get("content-type", "").startswith("text/html")


async def get_token(
    client: LazyHttpClient | httpx2.AsyncClient, file: Path, quota_project: str | None
) -> AuthToken:
    """A token for the credentials in that file."""
    requests = GoogleTransport(client)
    try:
        return await asyncio.to_thread(refresh_token, requests, file, quota_project)
    finally:
        requests.give_up()


def refresh_token(requests: GoogleTransport, file: Path, quota_project: str | None) -> AuthToken:
    """A new token. google-auth trusts what servers send, so it may raise any exception.

    The file is read each time, so that a new login takes effect at once.
    """
    try:
        found = load_credentials(requests, file, quota_project)
        found.refresh(requests)
    except Exception as error:
        text = str(error.args[0] if error.args else error).strip() or type(error).__name__
        why = text.splitlines()[0][:300]
        sentence = f"Google returned no token for {file} ({why})"
        if requests.status in REFUSED:
            raise NoLogin(sentence, hint=LOG_IN) from error
        raise NotReached(sentence, hint="is the network up?") from error
    headers: dict[str, str] = {}
    found.apply(headers)
    now = WallClock().now()
    until = found.expiry.replace(tzinfo=UTC).timestamp() if found.expiry else now + LIFE_S
    return AuthToken(headers=headers, life_s=until - now)


def load_credentials(
    requests: GoogleTransport, file: Path, quota_project: str | None
) -> Credentials:
    """Credentials from any kind of file that Google's tools write."""
    content = json.loads(file.read_bytes())
    with warnings.catch_warnings(
        action="ignore"
    ):  # our errors give the advice if the cloud refuses
        found, _ = load_credentials_from_dict(
            content, scopes=[SCOPE], quota_project_id=quota_project, request=requests
        )
    loaded: Credentials = found
    return loaded
