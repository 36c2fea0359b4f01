"""A thin client of the cloud's REST interfaces: one try, JSON both ways, clear errors."""

from __future__ import annotations

from collections.abc import Mapping
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, Protocol

from tpuherd.cloud.later import Later, httpx2
from tpuherd.cloud.whence import Urls
from tpuherd.ports import Absent, Broken, HerdError, NotAllowed, NotFound, NotReached, Unfit

Json = dict[str, Any]
TIMEOUT_S = 30.0


class Stale(Broken):
    """Somebody else changed it meanwhile, or it is busy: look again."""


class Said(Exception):
    """The cloud's own words: the cause of what is raised for them."""

    def __init__(self, status: int, content: object) -> None:
        super().__init__(f"HTTP status {status}")
        error = content.get("error") if isinstance(content, dict) else None
        self.status = status
        self.content: Mapping[str, Any] = error if isinstance(error, dict) else {}


class Bearer(Protocol):
    """Who may ask."""

    async def headers(self) -> Mapping[str, str]:
        """What to put into each request."""
        ...


class Rest:
    """The connections to the cloud."""

    def __init__(self, client: Later | httpx2.AsyncClient, urls: Urls, bearer: Bearer) -> None:
        self.client = client
        self.urls = urls
        self.bearer = bearer
        self.reads = 0  #: requests that only looked, so far

    async def tpu(
        self, method: str, path: str, body: Json | None = None, **query: str | int
    ) -> Json:
        """Cloud TPU: the path follows /v2/."""
        return await self._ask(method, f"{self.urls.tpu}/v2/{path}", body, query)

    async def compute(
        self, method: str, path: str, body: Json | None = None, **query: str | int
    ) -> Json:
        """Compute: the path follows /compute/v1/."""
        return await self._ask(method, f"{self.urls.compute}/compute/v1/{path}", body, query)

    async def storage(self, path: str) -> Json:
        """Cloud Storage, to look only: the path follows /storage/v1/."""
        return await self._ask("GET", f"{self.urls.storage}/storage/v1/{path}", None, {})

    async def _ask(
        self, method: str, url: str, body: Json | None, query: Mapping[str, str | int]
    ) -> Json:
        """One request, one answer."""
        headers = await self.bearer.headers()
        self.reads += method == "GET"
        try:
            answer = await self.client.request(
                method,
                url,
                json=body,
                params={name: word for name, word in query.items() if word != ""},
                headers=dict(headers),
            )
        except httpx2.TimeoutException as error:
            raise NotReached(f"the cloud gave no answer in {TIMEOUT_S:g} s") from error
        except httpx2.HTTPError as error:
            kind = Absent if isinstance(error, httpx2.ConnectError) else NotReached
            raise kind(
                f"the cloud at {url.partition('/v')[0]} can't be reached ({error})",
                hint="is the network up? A simulated world is started by `herd sim start`",
            ) from error
        try:
            content = answer.json() if answer.content else {}
        except ValueError:
            content = {}
        if answer.status_code >= 400 or not isinstance(content, dict):
            raise refusal(answer.status_code, content) from Said(answer.status_code, content)
        return content


def client(transport: httpx2.AsyncBaseTransport | None = None) -> httpx2.AsyncClient:
    """For a world: keeps connections, and asks no proxy. `transport`: to one in this process."""
    nobody = SSLContext(PROTOCOL_TLS_CLIENT)  # worlds speak plainly; to load whom to trust is slow
    return httpx2.AsyncClient(
        transport=transport, timeout=TIMEOUT_S, trust_env=False, verify=nobody
    )


def client_outside() -> httpx2.AsyncClient:
    """For Google: by the proxies and certificates that the environment names."""
    return httpx2.AsyncClient(timeout=TIMEOUT_S)


def refusal(status: int, content: object) -> HerdError:
    """The cloud's refusal as one of our errors."""
    said = content.get("error") if isinstance(content, dict) else None
    sentence = said.get("message") if isinstance(said, dict) else None
    sentence = str(sentence or f"the cloud answered with HTTP status {status}").rstrip(".")
    if status == 404:
        return NotFound(sentence)
    if status == 401:
        return NotAllowed(sentence, hint="log in anew: gcloud auth application-default login")
    if status == 403:
        return NotAllowed(sentence, hint="does the account have the role roles/tpu.admin?")
    if status in (409, 412):
        return Stale(sentence)
    if status == 400:
        return Unfit(sentence)
    if status == 429:
        return Broken(sentence, hint="the cloud limits how often it is asked: wait a minute")
    return Broken(sentence)
