"""Posts a message to a web address: one try, no redirects, a bounded answer."""

from __future__ import annotations

import asyncio
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from tpuherd.lazy_modules import import_lazily
from tpuherd.notify.outbox import SendProblem
from tpuherd.notify.payloads import WebRequest

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = import_lazily("httpx2")

TIMEOUT_S = 20.0  #: for all of it
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
ANSWER_MAX = 4096  #: bytes of an answer that are read
LATER = {408, 425, 429}  #: statuses below 500 after which a repeated try may succeed


def open_web_client() -> httpx2.AsyncClient:
    """A client with the proxies and certificates of the environment."""
    return httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False)


async def post_message(
    http: httpx2.AsyncClient, request: WebRequest, now: float
) -> SendProblem | None:
    """Send it; None: it was accepted."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            http.stream(
                "POST", request.url, content=request.body, headers=dict(request.headers)
            ) as response,
        ):
            if response.is_success:
                return None
            return refusal_problem(response, await read_beginning(response), now)
    except (TimeoutError, httpx2.TimeoutException):
        return SendProblem(sentence=f"it did not answer within {TIMEOUT_S:.0f} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return SendProblem(sentence=f"it can't be reached: {error_text(error)}")


def refusal_problem(response: httpx2.Response, answer: str, now: float) -> SendProblem:
    """Why this answer means that it was not accepted."""
    status = response.status_code
    if 300 <= status < 400:
        said = f"it answered with a redirect (HTTP {status}), which is not followed: name the final"
        return SendProblem(sentence=f"{said} address", final=True)
    text = f"HTTP {status}" + (f": {answer}" if answer else "")
    return SendProblem(
        sentence=text,
        retry_after_s=wait_of_header(response.headers.get("retry-after", ""), now),
        final=400 <= status < 500 and status not in LATER,
    )


async def read_beginning(response: httpx2.Response) -> str:
    """Return the beginning of an answer as one printable line."""
    content = b""
    async for piece in response.aiter_raw():
        content += piece
        if len(content) >= ANSWER_MAX:
            break
    text = "".join(
        one if one.isprintable() else " " for one in content[:ANSWER_MAX].decode(errors="replace")
    )
    return " ".join(text.split())


def wait_of_header(value: str, now: float) -> float:
    """Seconds of a Retry-After, which is a number or a date; 0 if it is neither."""
    if value.strip().isdecimal():
        return float(value.strip()[:9])
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def error_text(error: BaseException) -> str:
    """The last words of an error, or its name."""
    return ERRNO.sub("", " ".join(str(error).split())) or type(error).__name__
