"""Requests to the world and responses, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request. A world's journal is a list of these with their times."""

    method: str
    path: str  #: as sent: percent-encoded, without the query
    query: str = ""  #: as sent, without the question mark
    headers: Mapping[str, str] = field(default_factory=dict)  #: names in lower case
    body: bytes = b""


def google_host(request: Request) -> str:
    """Return the name of Google's host that a request is for; "" for an address of the world."""
    name = request.headers.get("host", "").partition(":")[0].lower()
    return name if name.endswith(("googleapis.com", ".google.com")) else ""


class Part(NamedTuple):
    """Consecutive bytes of a file in the world's folder of contents."""

    file: str
    size: int
    start: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A response. The server obeys the two weather fields; clients never see them."""

    status: int = 200
    body: bytes = b""
    parts: tuple[Part, ...] = ()  #: what the server sends from files, after the body
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0  #: wait this long before responding (wall time)
    lost: bool = False  #: cut the connection without a response, although the request took effect


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiCall:
    """A request that matched a route, with its path, query and body parsed."""

    request: Request
    version: str  #: the first part of the path: v2, v2alpha1, compute, …
    path: Mapping[str, str]  #: the route's named parts, percent-decoded
    query: Mapping[str, str]  #: the route's named segments, percent-decoded
    body: Json


class ApiError(Exception):
    """the last value of each name, without system parameters"""

    def __init__(
        self, http: int, status: str, message: str, *, details: tuple[Json, ...] = ()
    ) -> None:
        super().__init__(message)
        self.http = http
        self.status = status  #: INVALID_ARGUMENT, NOT_FOUND, …
        self.message = message
        self.details = details
