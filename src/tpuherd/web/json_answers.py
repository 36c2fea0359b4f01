"""Answers as JSON: values, and errors as a sentence with a hint."""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotReached,
    Superseded,
)

JSON_TYPE = "application/json"
BODY_MAX = 64 << 10  #: of a request


class StoreUnavailable(HerdError):
    """The store can't be read now: the page says so and asks again."""


class BadRequest(HerdError):
    """A request that no page of ours makes."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


#: The first that fits.
STATUS: Mapping[type[HerdError], int] = {
    StoreUnavailable: 503,
    NotFound: 404,
    InvalidInput: 400,
    NotAllowed: 403,
    NotReached: 502,
    Superseded: 409,
    HerdError: 500,
}


def encode_json(content: object) -> bytes:
    """Return compact JSON; numbers that JSON does not have become null."""
    try:
        return msgspec.json.encode(content)
    except (UnicodeEncodeError, TypeError):  # half a surrogate pair in a text, or an unusual type
        return json.dumps(finite_values(content), default=str, separators=(",", ":")).encode()


def finite_values(content: Any) -> Any:
    """Replace what is not a finite number by None."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {str(name): finite_values(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite_values(value) for value in content]
    return content


def json_answer(content: object, status: int = 200) -> Response:
    return Response(encode_json(content), status_code=status, media_type=JSON_TYPE)


def error_answer(error: HerdError) -> Response:
    if isinstance(error, BadRequest):
        status = error.status
    else:
        status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return json_answer({"error": error.sentence, "hint": error.hint}, status)


async def read_json_body(request: Request) -> dict[str, Any]:
    """Return the object in the body; BadRequest for any other."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise BadRequest(415, "send JSON: Content-Type: application/json")
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_MAX:
                raise BadRequest(413, f"the request has more than {BODY_MAX} bytes")
    except ClientDisconnect:
        raise BadRequest(400, "the request was cut off") from None
    try:
        found = json.loads(bytes(body) or b"{}")
    except (ValueError, RecursionError):
        raise BadRequest(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadRequest(400, "the body must be a JSON object")
    return found


def read_number(request: Request, name: str, *, least: float, most: float) -> float | None:
    """Return a number of the query within bounds; None without one."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise BadRequest(400, f"{name} must be a number from {least:g} to {most:g}")
    return found
