"""One request to the world and one answer, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What arrives. The journal of a world is a list of these with their times."""

    method: str
    path: str  #: as sent: percent-encoded, without the query
    query: str = ""  #: as sent, without the question mark
    headers: Mapping[str, str] = field(default_factory=dict)  #: names in lower case
    body: bytes = b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """What is answered. Two fields are the weather's: the server obeys, clients never see them."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0  #: hold the answer back for so long (wall time)
    lost: bool = False  #: the effect took place, but cut the connection without a word


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiCall:
    """A request that found its route: the parts of its path, its query and its body taken apart."""

    request: Request
    version: str  #: the first part of the path: v2, v2alpha1, compute, …
    path: Mapping[str, str]  #: the route's named parts, percent-decoded
    query: Mapping[str, str]  #: the last value of each name; system parameters left out
    body: Json


class ApiError(Exception):
    """The API says no. Turned into its error JSON by `handle`; never a bug of ours."""

    def __init__(
        self, http: int, status: str, message: str, *, details: tuple[Json, ...] = ()
    ) -> None:
        super().__init__(message)
        self.http = http
        self.status = status  #: INVALID_ARGUMENT, NOT_FOUND, …
        self.message = message
        self.details = details
