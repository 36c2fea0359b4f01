"""Reads the cloud's clock, which every reply carries; no login is needed."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from tpuherd.cloud.error_replies import BETWEEN, MalformedAnswer
from tpuherd.cloud.lazy_http import httpx2
from tpuherd.cloud.rest import RestClient
from tpuherd.errors import NotReached


async def read_cloud_time(rest: RestClient) -> float:
    """Return what the clock of Cloud TPU's servers shows, in whole seconds since 1970."""
    try:
        async with rest.client.stream("GET", f"{rest.urls.tpu}/") as answer:
            text = answer.headers.get("date", "")
    except httpx2.HTTPError as error:
        raise NotReached(
            f"the cloud at {rest.urls.tpu} can't be reached ({error})",
            hint="is the network up, and this machine's clock right?",
        ) from error
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError as error:
        raise MalformedAnswer(
            f"{rest.urls.tpu} answered without its time ({text!r})", hint=BETWEEN
        ) from error
