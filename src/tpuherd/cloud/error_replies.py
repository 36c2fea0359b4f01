"""Errors as the cloud words them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuherd.errors import OperationFailed

#: Of google.rpc.Code, by the word and by the HTTP status where there is no word.
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


BETWEEN = "is a proxy or a network's login page in between? try: curl -v https://tpu.googleapis.com"


class MalformedAnswer(OperationFailed):
    """An answer that makes no sense: it says nothing of what there is, or of what was done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudError:
    """An error as the cloud words it, of an answer, an operation or a request."""

    code: int  #: of google.rpc.Code
    sentence: str


def parse_error(content: Mapping[str, Any], status: int) -> CloudError:
    """From the JSON of an answer with that HTTP status, whatever else is in it."""
    code = CODES.get(str(content.get("status", "")), STATUSES.get(status, UNAVAILABLE))
    return CloudError(
        code=code, sentence=clean_message(content.get("message") or f"HTTP status {status}")
    )


def clean_message(sentence: object) -> str:
    """Without the number that support asks for, and without the dot."""
    return re.sub(r"\s*\[EID: [^]]*\]", "", str(sentence)).rstrip(".")
