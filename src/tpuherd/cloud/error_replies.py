"""Parses the errors in cloud replies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuherd.errors import OperationFailed

#: google.rpc.Code by its name, and by the HTTP status if the reply names none.
CODES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}
STATUSES: Mapping[int, int] = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 412: 10, 429: 8}
UNAVAILABLE, UNAUTHENTICATED = 14, 16
MESSAGE_MAX = 1500  #: characters that events, messages and terminals get


BETWEEN = "a proxy or a login page may answer instead; try: curl -v https://tpu.googleapis.com"


class MalformedAnswer(OperationFailed):
    """A reply that we can't parse: nothing follows from it about resources or operations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudError:
    """An error in the cloud's words: of a reply, an operation or a queued resource."""

    code: int  #: a google.rpc.Code
    sentence: str


def parse_error(content: Mapping[str, Any], status: int) -> CloudError:
    """From the JSON of a reply with that HTTP status, whatever else it contains."""
    code = CODES.get(str(content.get("status", "")), STATUSES.get(status, UNAVAILABLE))
    return CloudError(
        code=code, sentence=clean_message(content.get("message") or f"HTTP status {status}")
    )


def clean_message(sentence: object) -> str:
    """The beginning of the message, without its support id ([EID: …]) and the final period."""
    plain = re.sub(r"\s*\[EID: [^]]*\]", "", str(sentence)).rstrip(".")
    return plain if len(plain) <= MESSAGE_MAX else f"{plain[:MESSAGE_MAX]}…"
