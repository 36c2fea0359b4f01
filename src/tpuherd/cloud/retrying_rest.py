"""The client of commands, behind whom no plan stands: what only looks is asked again for seconds.

The engine's client tries once, and its plan decides; a command has but this moment. What changes
anything is asked once here, too: whoever said it can see what came of it, and say it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tpuherd.clock import Clock
from tpuherd.cloud.lazy_http import LazyHttpClient, httpx2
from tpuherd.cloud.rest import ErrorReply, Json, RequestAuth, RestClient
from tpuherd.errors import HerdError, NotListening
from tpuherd.settings.endpoints import ServiceUrls

PAUSES_S = (0.3, 1.0, 2.5)
PASSING = frozenset({500, 502, 503, 504})  #: statuses of a moment
#: Methods by POST that change nothing.
LOOKS = (":getGuestAttributes",)


class RetryingRest(RestClient):
    """Goes on where the trouble was a moment's."""

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
        self, method: str, url: str, body: Json | None, query: Mapping[str, str | int]
    ) -> Json:
        """One answer, or that there was none in several tries."""
        if method == "GET" or url.endswith(LOOKS):
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
            raise trouble_error(error) from error.__cause__


def is_transient(error: HerdError) -> bool:
    """Whether it may be over in a moment: not where nobody listens, nor after a whole time-out."""
    cause = error.__cause__
    if isinstance(cause, ErrorReply):
        return cause.status in PASSING
    cut = isinstance(cause, httpx2.HTTPError) and not isinstance(cause, httpx2.TimeoutException)
    return cut and not isinstance(error, NotListening)


def trouble_error(error: HerdError) -> HerdError:
    """The same as what it is: not our user's fault, and seldom for long."""
    return type(error)(f"the cloud is in trouble: {error.sentence}", hint="try again later")
