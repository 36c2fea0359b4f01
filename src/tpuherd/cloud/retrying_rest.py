"""The REST client of commands: retries reads for a few seconds.

The engine's client tries once and the planner decides what to do next; a command has no planner.
Requests that change something are sent once here too: the user sees the error and can repeat them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tpuherd.clock import Clock
from tpuherd.cloud.lazy_http import LazyHttpClient, httpx2
from tpuherd.cloud.rest import ConnectionCut, Json, QueryValue, RequestAuth, RestClient
from tpuherd.errors import HerdError
from tpuherd.settings.endpoints import ServiceUrls

PAUSES_S = (0.3, 1.0, 2.5)
PASSING = frozenset({500, 502, 503, 504})  #: statuses that are often temporary
#: POST methods that change nothing.
READS = (":getGuestAttributes", ":getIamPolicy", ":testIamPermissions")


class RetryingRest(RestClient):
    """Retries reads after transient errors."""

    def __init__(
        self,
        client: LazyHttpClient | httpx2.AsyncClient,
        urls: ServiceUrls,
        bearer: RequestAuth,
        clock: Clock,
    ) -> None:
        super().__init__(client, urls, bearer)
        self._clock = clock

    async def _request_json(
        self, method: str, url: str, body: Json | None, query: Mapping[str, QueryValue]
    ) -> Json:
        if method == "GET" or url.endswith(READS):
            for pause_s in PAUSES_S:
                try:
                    return await super()._request_json(method, url, body, query)
                except HerdError as error:
                    if not is_transient(error):
                        raise
                await self._clock.sleep(pause_s)
        try:
            return await super()._request_json(method, url, body, query)
        except HerdError as error:
            if not is_transient(error):
                raise
            raise trouble_error(error) from error


def is_transient(error: HerdError) -> bool:
    """Whether a retry may help: not if nothing listens there, nor after a full timeout."""
    return error.status in PASSING or isinstance(error, ConnectionCut)


def trouble_error(error: HerdError) -> HerdError:
    """The same error, worded as a temporary failure of the cloud."""
    sentence = f"the cloud has a temporary problem: {error.sentence}"
    return type(error)(sentence, hint="try again later").carry_reply(error.status, error.reply)
