"""Compute's regions and zones."""

from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.links import own_project_path, resource_url
from tpuherd_sim.google_apis.pagination import list_response
from tpuherd_sim.model.compute_errors import not_found_error
from tpuherd_sim.model.http_types import ApiCall, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.ip_addresses import EXTERNAL_MAX
from tpuherd_sim.tpu.quota_and_stock import IN_USE_ADDRESSES
from tpuherd_sim.tpu.router import Route


def region_json(world: World, name: str) -> Json:
    """Return a region with its one quota that matters for TPU slices."""
    used = sum(
        worker.external_ip is not None
        for node in world.nodes.values()
        if node.zone.rpartition("-")[0] == name
        for worker in node.workers
    )
    limit = world.books.quotas.get(f"{name}/{IN_USE_ADDRESSES}", EXTERNAL_MAX)
    return {
        "kind": "compute#region",
        "id": str(1000 + 10 * list(regions()).index(name)),
        "name": name,
        "description": name,
        "status": "UP",
        "zones": [resource_url(world, f"zones/{zone}") for zone in regions()[name].zones],
        "quotas": [{"metric": IN_USE_ADDRESSES, "limit": float(limit), "usage": float(used)}],
        "selfLink": resource_url(world, f"regions/{name}"),
    }


def zone_json(world: World, name: str) -> Json:
    region, _, letter = name.rpartition("-")
    return {
        "kind": "compute#zone",
        "id": str(2000 + 10 * list(regions()).index(region) + "abcdef".index(letter)),
        "name": name,
        "description": name,
        "status": "UP",
        "region": resource_url(world, f"regions/{region}"),
        "selfLink": resource_url(world, f"zones/{name}"),
    }


def known_region(world: World, call: ApiCall) -> str:
    home, name = own_project_path(world, call), call.path["region"]
    if name not in regions():
        raise not_found_error(f"{home}/regions/{name}")
    return name


def get_region(world: World, call: ApiCall, now: float) -> Json:
    return region_json(world, known_region(world, call))


def list_regions(world: World, call: ApiCall, now: float) -> Json:
    home = own_project_path(world, call)
    places = [region_json(world, name) for name in regions()]
    return list_response("regionList", f"{home}/regions", places, call)


def get_zone(world: World, call: ApiCall, now: float) -> Json:
    home, name = own_project_path(world, call), call.path["zone"]
    region = regions().get(name.rpartition("-")[0])
    if region is None or name not in region.zones:
        raise not_found_error(f"{home}/zones/{name}")
    return zone_json(world, name)


def list_zones(world: World, call: ApiCall, now: float) -> Json:
    home = own_project_path(world, call)
    places = [zone_json(world, zone) for region in regions().values() for zone in region.zones]
    return list_response("zoneList", f"{home}/zones", places, call)


ROUTES = (
    Route("GET", "/compute/v1/projects/{project}/regions", list_regions),
    Route("GET", "/compute/v1/projects/{project}/regions/{region}", get_region),
    Route("GET", "/compute/v1/projects/{project}/zones", list_zones),
    Route("GET", "/compute/v1/projects/{project}/zones/{zone}", get_zone),
)
