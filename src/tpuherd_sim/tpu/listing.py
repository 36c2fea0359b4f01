"""Paginated lists over one zone or all, as complete and recent as the weather allows."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuherd.catalogue import zones
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Response
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.errors import JSON_HEADERS, invalid_request_error, weather_error
from tpuherd_sim.tpu.names import ANY, check_zone
from tpuherd_sim.tpu.render import json_bytes

PAGE_SIZE_MAX = 500  #: also the default
#: Cache of lists until something in them changes, with a limited number.
REMEMBERED = frozenset({"nodes", "queuedResources"})
PAGES_MAX = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRecords:
    """What to list and how to render it."""

    field: str  #: nodes, queuedResources, …
    records: Mapping[str, Any]  #: by zone/id
    render: Callable[[Any], bytes]


def list_records(world: World, call: ApiCall, now: float, page: ListedRecords) -> Response:
    """List one page of the records of a zone, or of all zones."""
    if world.weather.rules or page.field not in REMEMBERED:
        return render_list_page(world, call, now, page)
    asked = (call.version, page.field, call.path["zone"], call.request.query)
    answer = world.pages.get(asked)
    if answer is None:
        answer = render_list_page(world, call, now, page)
        if len(world.pages) < PAGES_MAX:
            world.pages[asked] = answer
    return answer


def render_list_page(world: World, call: ApiCall, now: float, page: ListedRecords) -> Response:
    """Render a page without the cache."""
    zone = call.path["zone"]
    check_zone(world, zone, now, wildcard=True)
    size, after = page_size(call), page_token(call)
    records = page.records
    absent: list[str] = []
    if world.weather.rules:
        method = f"{page.field}.list"
        absent = unreachable_zones(world, zone, method, now)
        stale = consume_rule(world, "stale-list", now, zone=zone, method=method)
        if stale is not None:
            records = records_as_of(world, page, now - float(stale.params.get("age_s", 30.0)))
    keys = sorted(records)
    if zone != ANY:
        # The keys of a zone lie between "zone/" and "zone0", the next character after a slash.
        keys = keys[bisect_right(keys, f"{zone}/") : bisect_right(keys, f"{zone}0")]
    if absent:
        keys = [key for key in keys if key.partition("/")[0] not in absent]
    start = bisect_right(keys, after) if after else 0
    chosen = keys[start : start + size]
    rest: Json = {}
    if start + size < len(keys):
        rest["nextPageToken"] = make_page_token(chosen[-1])
    if absent:
        place = f"projects/{world.settings.project}/locations/"
        rest["unreachable"] = [place + one for one in absent]
    items = [page.render(records[key]) for key in chosen]
    return Response(body=assemble_page(page.field, items, rest), headers=JSON_HEADERS)


def assemble_page(field: str, items: list[bytes], rest: Json) -> bytes:
    """Return the JSON of a page; items are copied only once, because they can be megabytes."""
    end = json_bytes(rest)
    if not items:
        return end
    items[0] = b'{"%s":[%s' % (field.encode(), items[0])
    items[-1] += b"]," + end[1:] if rest else b"]}"
    return b",".join(items)


def unreachable_zones(world: World, zone: str, method: str, now: float) -> list[str]:
    """Return the zones that do not respond this time; for a single zone this raises the error."""
    asked = [zone] if zone != ANY else sorted(zones())
    absent = [
        one
        for one in asked
        if consume_rule(world, "unreachable-zone", now, zone=one, method=method)
    ]
    if absent and zone != ANY:
        raise weather_error(world, 503, "", f"The service is unreachable in {zone}.")
    return absent


def records_as_of(world: World, page: ListedRecords, at: float) -> Mapping[str, Any]:
    """Return the records as of that time, as far back as the history goes."""
    records = dict(page.records)
    for change in reversed(world.past):
        if change.at <= at:
            break
        if change.collection != page.field:
            continue
        if change.old is None:
            records.pop(change.key, None)
        else:
            records[change.key] = change.old
    return records


def page_size(call: ApiCall) -> int:
    size = int(call.query.get("pageSize", "0"))
    if size < 0:
        raise invalid_request_error("page_size must not be negative.", field="page_size")
    return min(size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)


def page_token(call: ApiCall) -> str:
    """Return the key after which the page starts."""
    given = call.query.get("pageToken", "")
    if not given:
        return ""
    try:
        key = base64.urlsafe_b64decode(given.encode()).decode()
    except (binascii.Error, ValueError):
        key = ""
    zone = call.path.get("zone", ANY)
    if "/" not in key or (zone != ANY and not key.startswith(f"{zone}/")):
        raise ApiError(400, "INVALID_ARGUMENT", "The page token is not valid.")
    return key


def make_page_token(key: str) -> str:
    """Return the token of the page after a key."""
    return base64.urlsafe_b64encode(key.encode()).decode()
