"""Compute's regions and zones."""

from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.links import link, project_of
from tpuherd_sim.google_apis.pagination import listing
from tpuherd_sim.model.compute_errors import missing
from tpuherd_sim.model.http_types import Call, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.ip_addresses import EXTERNAL_MAX
from tpuherd_sim.tpu.quota_and_stock import IN_USE_ADDRESSES
from tpuherd_sim.tpu.router import Route


def render_region(world: World, name: str) -> Json:
    """A region with the one quota that TPU slices run into."""
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
        "zones": [link(world, f"zones/{zone}") for zone in regions()[name].zones],
        "quotas": [{"metric": IN_USE_ADDRESSES, "limit": float(limit), "usage": float(used)}],
        "selfLink": link(world, f"regions/{name}"),
    }


def render_zone(world: World, name: str) -> Json:
    """A zone."""
    region, _, letter = name.rpartition("-")
    return {
        "kind": "compute#zone",
        "id": str(2000 + 10 * list(regions()).index(region) + "abcdef".index(letter)),
        "name": name,
        "description": name,
        "status": "UP",
        "region": link(world, f"regions/{region}"),
        "selfLink": link(world, f"zones/{name}"),
    }


def known_region(world: World, call: Call) -> str:
    """The region of the path."""
    home, name = project_of(world, call), call.path["region"]
    if name not in regions():
        raise missing(f"{home}/regions/{name}")
    return name


def get_region(world: World, call: Call, now: float) -> Json:
    """One region."""
    return render_region(world, known_region(world, call))


def list_regions(world: World, call: Call, now: float) -> Json:
    """Every region."""
    home = project_of(world, call)
    places = [render_region(world, name) for name in regions()]
    return listing("regionList", f"{home}/regions", places, call)


def get_zone(world: World, call: Call, now: float) -> Json:
    """One zone."""
    home, name = project_of(world, call), call.path["zone"]
    region = regions().get(name.rpartition("-")[0])
    if region is None or name not in region.zones:
        raise missing(f"{home}/zones/{name}")
    return render_zone(world, name)


def list_zones(world: World, call: Call, now: float) -> Json:
    """Every zone."""
    home = project_of(world, call)
    places = [render_zone(world, zone) for region in regions().values() for zone in region.zones]
    return listing("zoneList", f"{home}/zones", places, call)


ROUTES = (
    Route("GET", "/compute/v1/projects/{project}/regions", list_regions),
    Route("GET", "/compute/v1/projects/{project}/regions/{region}", get_region),
    Route("GET", "/compute/v1/projects/{project}/zones", list_zones),
    Route("GET", "/compute/v1/projects/{project}/zones/{zone}", get_zone),
)
