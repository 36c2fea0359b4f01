"""Finds the route of a method and a path in a few microseconds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote

from tpuherd_sim.model.http_types import ApiCall, Json, Response

if TYPE_CHECKING:
    from tpuherd_sim.model.world import World


@dataclass(frozen=True, slots=True)
class Route:
    """A template such as `DELETE /v2/projects/{project}/locations/{zone}/nodes/{node}` and its
    handler.
    """

    method: str
    template: str
    answer: Callable[["World", ApiCall, float], "Json | Response"]


#: Query parameters of every Google API, which no method reads.
SYSTEM = frozenset(
    {
        "$.xgafv", "access_token", "alt", "$alt", "callback", "fields", "$fields", "key",
        "oauth_token", "prettyPrint", "$prettyPrint", "quotaUser", "uploadType",
        "upload_protocol", "userProject",
    }
)  # fmt: skip
#: The API's verb for an HTTP method on one resource.
VERBS = {
    "GET": "get",
    "HEAD": "get",
    "DELETE": "delete",
    "PATCH": "patch",
    "PUT": "update",
    "POST": "create",
}


class RouteMatch(NamedTuple):
    """A route with the path segments that it matched."""

    route: Route
    name: str  #: nodes.create, queuedResources.reset, …
    version: str
    path: Mapping[str, str]


@dataclass(slots=True)
class RouteBranch:
    """A node in the tree of templates."""

    words: dict[str, "RouteBranch"] = field(default_factory=dict)
    any: "RouteBranch | None" = None
    ends: dict[tuple[str, str], tuple[Route, str, tuple[str, ...]]] = field(default_factory=dict)


class Router:
    """All routes as a tree over the segments of their paths."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.root = RouteBranch()
        for route in routes:
            self._add_route(route)
        self.find = lru_cache(maxsize=8192)(self._find_route)

    def _add_route(self, route: Route) -> None:
        *segments, last = route.template.strip("/").split("/")
        last, verb = split_verb(last)
        branch, names = self.root, []
        for segment in (*segments, last):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                branch.any = branch.any or RouteBranch()
                branch = branch.any
            else:
                branch = branch.words.setdefault(segment, RouteBranch())
        branch.ends[route.method, verb] = (route, method_name(route), tuple(names))

    def _find_route(self, method: str, path: str) -> RouteMatch | None:
        segments = [unquote(one) for one in path.strip("/").split("/")]
        # A verb follows the last colon, but only if it exists: some names contain colons.
        last, colon, verb = segments[-1].rpartition(":")
        if colon and verb and (found := self._walk_tree(method, [*segments[:-1], last], verb)):
            return found
        return self._walk_tree(method, segments, "")

    def _walk_tree(self, method: str, segments: list[str], verb: str) -> RouteMatch | None:
        values: list[str] = []
        end = match_segments(self.root, segments, 0, (method, verb), values)
        if end is None:
            return None
        route, name, names = end
        return RouteMatch(route, name, segments[0], dict(zip(names, values, strict=True)))


def match_segments(
    branch: RouteBranch, segments: list[str], depth: int, end: tuple[str, str], values: list[str]
) -> tuple[Route, str, tuple[str, ...]] | None:
    """Match words before placeholders; a placeholder matches one nonempty segment."""
    if depth == len(segments):
        return branch.ends.get(end)
    segment = segments[depth]
    word = branch.words.get(segment)
    if word is not None:
        found = match_segments(word, segments, depth + 1, end, values)
        if found is not None:
            return found
    if branch.any is None or not segment:
        return None
    values.append(segment)
    found = match_segments(branch.any, segments, depth + 1, end, values)
    if found is None:
        values.pop()
    return found


def split_verb(segment: str) -> tuple[str, str]:
    """Split `{node}:stop` into its two parts."""
    name, colon, verb = segment.rpartition(":")
    return (name, verb) if colon else (segment, "")


def method_name(route: Route) -> str:
    """Return the name of a route in documents, permissions and weather rules."""
    segments = route.template.strip("/").split("/")
    last, verb = split_verb(segments[-1])
    single = last.startswith("{")
    words = [one for one in (*segments[:-1], last) if not one.startswith("{")]
    plain = "get" if single else "list"
    return f"{words[-1]}.{verb or (plain if route.method == 'GET' else VERBS[route.method])}"


@lru_cache(maxsize=1024)
def parse_query(query: str) -> Mapping[str, str]:
    """Return the last value of each name, without system parameters."""
    if not query:
        return {}
    pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
    return {name: value for name, value in pairs if name not in SYSTEM}
