"""Service Usage: enabled APIs and TPU quotas."""

from collections.abc import Iterator, Mapping
from urllib.parse import quote as escape

from tpuherd.catalogue import regions, zones
from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.pagination import query_integer
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

TPU = "tpu.googleapis.com"
#: The APIs of this server, which a project must have enabled.
SERVICES = tuple(
    f"{name}.googleapis.com"
    for name in (
        "cloudresourcemanager", "compute", "iam", "iamcredentials", "oauth2", "serviceusage",
        "storage", "tpu",
    )
)  # fmt: skip
UNLIMITED = -1
PAGE_MAX = 500
#: Quotas whose metric is not the beginning of their id.
METRICS = {CREATE_RATE: f"{TPU}/create_requests", REQUESTS: f"{TPU}/queued_resources"}


def numbered_project_path(world: World, call: ApiCall) -> str:
    """Return `projects/123456789012`; refuse a path of another project."""
    if not is_own_project(world, call.path["project"]):
        raise ApiError(403, "PERMISSION_DENIED", "The caller does not have permission")
    return f"projects/{world.settings.project_number}"


# -- quotas ---------------------------------------------------------------------------------------


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
    return paginate_items("metrics", found, call.query)


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


def paginate_items(field: str, items: list[Json], query: Mapping[str, str]) -> Json:
    size = min(query_integer(query, "pageSize", PAGE_MAX), PAGE_MAX) or PAGE_MAX
    start = query_integer(query, "pageToken", 0)
    chosen = items[start : start + size]
    answer: Json = {field: chosen} if chosen else {}
    if start + size < len(items):
        answer["nextPageToken"] = str(start + size)
    return answer


# -- services -------------------------------------------------------------------------------------


def service_json(world: World, name: str) -> Json:
    """Return an API; every API is enabled."""
    parent = f"projects/{world.settings.project_number}"
    return {
        "name": f"{parent}/services/{name}",
        "config": {"name": name, "title": name.partition(".")[0]},
        "state": "ENABLED",
        "parent": parent,
    }


def known_service(world: World, call: ApiCall) -> str:
    numbered_project_path(world, call)
    name = call.path["service"]
    if name not in SERVICES:
        text = f"Not found or permission denied for service(s): {name}."
        raise ApiError(403, "PERMISSION_DENIED", text)
    return name


def get_service(world: World, call: ApiCall, now: float) -> Json:
    return service_json(world, known_service(world, call))


def list_services(world: World, call: ApiCall, now: float) -> Json:
    numbered_project_path(world, call)
    off = call.query.get("filter", "").replace(" ", "") == "state:DISABLED"
    found = [] if off else [service_json(world, name) for name in SERVICES]
    return paginate_items("services", found, call.query)


def enable_service(world: World, call: ApiCall, now: float) -> Json:
    """Enable an API; it already is, so the operation is done at once."""
    return {
        "name": "operations/noop.DONE_OPERATION",
        "done": True,
        "response": {
            "@type": "type.googleapis.com/google.api.serviceusage.v1.EnableServiceResponse",
            "service": service_json(world, known_service(world, call)),
        },
    }


def service_routes(version: str) -> Iterator[Route]:
    """Yield the routes of one version; v1 has no quotas."""
    every = f"/{version}/projects/{{project}}/services"
    yield Route("GET", every, list_services)
    yield Route("GET", f"{every}/{{service}}", get_service)
    yield Route("POST", f"{every}/{{service}}:enable", enable_service)
    if version == "v1beta1":
        all_metrics = f"{every}/{{service}}/consumerQuotaMetrics"
        yield Route("GET", all_metrics, list_metrics)
        yield Route("GET", f"{all_metrics}/{{metric}}", get_metric)
        yield Route("GET", f"{all_metrics}/{{metric}}/limits/{{limit}}", get_limit)


ROUTES = (*service_routes("v1"), *service_routes("v1beta1"))
