"""TPU quotas, as Service Usage shows them."""

from collections.abc import Iterator
from urllib.parse import quote as escape

from tpuherd.catalogue import regions, zones
from tpuherd_sim.google_apis.enabled_services import TPU, known_service
from tpuherd_sim.google_apis.pagination import take_page
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.quota_and_stock import (
    CREATE_RATE,
    CREATES_PER_MINUTE,
    IN_USE_ADDRESSES,
    REQUESTS,
    WHOLE,
    quota_ids,
)
from tpuherd_sim.tpu.router import Route

UNLIMITED = -1
#: Quotas whose metric is not the beginning of their id.
METRICS = {CREATE_RATE: f"{TPU}/create_requests", REQUESTS: f"{TPU}/queued_resources"}


def quota_dimension(quota: str) -> str:
    """Return what a quota is counted by besides the project: zone, region or nothing."""
    if quota == CREATE_RATE:
        return ""
    return "region" if "PerRegion" in quota else "zone"


def quota_metrics(world: World) -> Iterator[Json]:
    """Yield every TPU quota as a metric with its single limit."""
    for quota in quota_ids("*"):
        if quota != IN_USE_ADDRESSES:  # this one belongs to Compute
            yield metric_json(world, quota)


def metric_json(world: World, quota: str) -> Json:
    metric = METRICS.get(quota, f"{TPU}/{quota.partition('PerProject')[0].lower()}")
    number, kind = world.settings.project_number, quota_dimension(quota)
    name = f"projects/{number}/services/{TPU}/consumerQuotaMetrics/{escape(metric, safe='')}"
    unit = "1/min/{project}" if quota == CREATE_RATE else f"1/{{project}}/{{{kind}}}"
    path = "/min/project" if quota == CREATE_RATE else f"/project/{kind}"
    limit: Json = {
        "name": f"{name}/limits/{escape(path, safe='')}",
        "unit": unit,
        "isPrecise": True,
        "metric": metric,
        "quotaBuckets": list(quota_buckets(world, quota, kind)),
    }
    if kind:
        limit["supportedLocations"] = sorted(zones() if kind == "zone" else regions())
    return {
        "name": name,
        "metric": metric,
        "displayName": quota,
        "consumerQuotaLimits": [limit],
        "unit": "1",
    }


def quota_buckets(world: World, quota: str, kind: str) -> Iterator[Json]:
    """Yield the global limit, then those of places with their own limit."""
    limits = {}
    for key, limit in world.books.quotas.items():
        place, _, name = key.partition("/")
        if name == quota:
            limits[place] = limit
    default = CREATES_PER_MINUTE if quota == CREATE_RATE else UNLIMITED
    yield {"effectiveLimit": str(limits.pop(WHOLE, default)), "defaultLimit": str(default)}
    for place, limit in sorted(limits.items()):
        yield {
            "effectiveLimit": str(limit),
            "defaultLimit": str(default),
            "dimensions": {kind: place},
        }


def list_metrics(world: World, call: ApiCall, now: float) -> Json:
    """List the quotas of an API; only Cloud TPU has any here."""
    known_service(world, call)
    found = list(quota_metrics(world)) if call.path["service"] == TPU else []
    return take_page("metrics", found, call.query)


def get_metric(world: World, call: ApiCall, now: float) -> Json:
    known_service(world, call)
    for metric in quota_metrics(world):
        if call.path["service"] == TPU and metric["metric"] == call.path["metric"]:
            return metric
    raise ApiError(404, "NOT_FOUND", f"Quota metric '{call.path['metric']}' was not found.")


def get_limit(world: World, call: ApiCall, now: float) -> Json:
    limit: Json
    for limit in get_metric(world, call, now)["consumerQuotaLimits"]:
        if limit["name"].endswith(escape(call.path["limit"], safe="")):
            return limit
    raise ApiError(404, "NOT_FOUND", f"Quota limit '{call.path['limit']}' was not found.")


def quota_routes() -> Iterator[Route]:
    """Yield the routes of quotas, which only v1beta1 has."""
    all_metrics = "/v1beta1/projects/{project}/services/{service}/consumerQuotaMetrics"
    yield Route("GET", all_metrics, list_metrics)
    yield Route("GET", f"{all_metrics}/{{metric}}", get_metric)
    yield Route("GET", f"{all_metrics}/{{metric}}/limits/{{limit}}", get_limit)


ROUTES = tuple(quota_routes())
