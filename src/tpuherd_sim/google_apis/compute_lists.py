"""Compute's lists: of what a world has nothing, such as instances, they are empty."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.compute_operations import OPERATIONS
from tpuherd_sim.google_apis.firewalls import FIREWALLS
from tpuherd_sim.google_apis.links import own_project_path, resource_url
from tpuherd_sim.google_apis.networks import NETWORKS, all_subnetworks
from tpuherd_sim.google_apis.pagination import list_response
from tpuherd_sim.model.compute_errors import invalid_value_error, not_found_error
from tpuherd_sim.model.http_types import ApiCall, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.ip_addresses import EXTERNAL_MAX
from tpuherd_sim.tpu.quota_and_stock import IN_USE_ADDRESSES
from tpuherd_sim.tpu.router import Route


def all_regions(world: World, now: float) -> list[Json]:
    """Return the regions with their one quota that matters for TPU slices."""
    used = Counter(
        node.zone.rpartition("-")[0]
        for node in world.nodes.values()
        for worker in node.workers
        if worker.external_ip is not None
    )
    found: list[Json] = []
    for index, (name, region) in enumerate(regions().items()):
        limit = world.books.quotas.get(f"{name}/{IN_USE_ADDRESSES}", EXTERNAL_MAX)
        quota = {"metric": IN_USE_ADDRESSES, "limit": float(limit), "usage": float(used[name])}
        links = [resource_url(world, f"zones/{zone}") for zone in region.zones]
        place = place_json(world, "region", name, 1000 + 10 * index)
        found.append({**place, "zones": links, "quotas": [quota]})
    return found


def all_zones(world: World, now: float) -> list[Json]:
    return [
        place_json(world, "zone", zone, 2000 + 10 * index + "abcdef".index(zone[-1]))
        | {"region": resource_url(world, f"regions/{name}")}
        for index, (name, region) in enumerate(regions().items())
        for zone in region.zones
    ]


def place_json(world: World, kind: str, name: str, number: int) -> Json:
    """Return what regions and zones have in common."""
    answer: Json = {"kind": f"compute#{kind}", "id": str(number), "name": name, "status": "UP"}
    return {**answer, "description": name, "selfLink": resource_url(world, f"{kind}s/{name}")}


@dataclass(frozen=True)
class ListedKind:
    """A kind of resources, in the whole project, in regions or in zones."""

    noun: str  #: instance
    plural: str
    scopes: tuple[str, ...]  #: "" for regions and zones themselves
    find_all: Callable[[World, float], Sequence[Json]] = lambda world, now: ()

    def list_places(self) -> list[str]:
        """Return where such resources can be, such as zones/us-central2-b."""
        zones = [zone for region in regions().values() for zone in region.zones]
        names = {"regions": list(regions()), "zones": zones}
        every = [(scope, name) for scope in self.scopes for name in names.get(scope, [""])]
        return [f"{scope}/{name}" if name else scope for scope, name in every]

    def find_rows(self, world: World, call: ApiCall, now: float) -> tuple[str, list[Json]]:
        """Return the path of a call's list, such as projects/demo/zones/x/disks, and its rows."""
        given = {"zone", "region"}.difference((self.noun,)).intersection(call.path)
        place = next((f"{kind}s/{call.path[kind]}" for kind in given), self.scopes[0])
        if place not in self.list_places():
            kind, _, name = place.partition("s/")
            raise invalid_value_error(kind, name, f"Unknown {kind}.")
        path = f"{own_project_path(world, call)}/{place}/{self.plural}".replace("//", "/")
        return path, [one for one in self.find_all(world, now) if place_of(one) == place]

    def answer_list(self, world: World, call: ApiCall, now: float) -> Json:
        """List those of a place."""
        path, rows = self.find_rows(world, call, now)
        return list_response(f"{self.noun}List", path, rows, call)

    def answer_get(self, world: World, call: ApiCall, now: float) -> Json:
        """Get one."""
        (path, rows), name = self.find_rows(world, call, now), call.path[self.noun]
        found = next((one for one in rows if one["name"] == name), None)
        if found is None:
            raise not_found_error(f"{path}/{name}")
        return found

    def answer_aggregated(self, world: World, call: ApiCall, now: float) -> Json:
        """List all, by place."""
        path = f"{own_project_path(world, call)}/aggregated/{self.plural}"
        page = list_response(f"{self.noun}AggregatedList", path, self.find_all(world, now), call)
        items: Json = {place: {"warning": empty_warning(place)} for place in self.list_places()}
        for place, here in groupby(sorted(page.get("items", ()), key=place_of), key=place_of):
            items[place] = {self.plural: list(here)}
        return {**page, "items": items}

    def build_routes(self) -> Iterator[Route]:
        """Yield the routes of each of its lists, and of one resource in each."""
        home = "/compute/v1/projects/{project}"
        for scope in self.scopes:
            place = f"{scope}/{{{scope[:-1]}}}" if scope in ("zones", "regions") else scope
            path = f"{home}/{place}/{self.plural}".replace("//", "/")
            yield Route("GET", path, self.answer_list)
            yield Route("GET", f"{path}/{{{self.noun}}}", self.answer_get)
        if self.scopes[-1] in ("regions", "zones"):
            yield Route("GET", f"{home}/aggregated/{self.plural}", self.answer_aggregated)


def empty_warning(place: str) -> Json:
    text = f"There are no results for scope '{place}' on this page."
    data = [{"key": "scope", "value": place}]
    return {"code": "NO_RESULTS_ON_PAGE", "message": text, "data": data}


def place_of(item: Json) -> str:
    """Return the scope of a resource: what its link has between project and kind."""
    return "/".join(item["selfLink"].split("/")[7:-2])


KINDS = (
    ListedKind("address", "addresses", ("global", "regions")),
    ListedKind("disk", "disks", ("regions", "zones")),
    ListedKind("firewall", "firewalls", ("global",), FIREWALLS.render_all),
    ListedKind("instance", "instances", ("zones",)),
    ListedKind("machineType", "machineTypes", ("zones",)),
    ListedKind("network", "networks", ("global",), NETWORKS.render_all),
    ListedKind("operation", "operations", ("global", "regions", "zones"), OPERATIONS.render_all),
    ListedKind("region", "regions", ("",), all_regions),
    ListedKind("reservation", "reservations", ("zones",)),
    ListedKind("subnetwork", "subnetworks", ("regions",), all_subnetworks),
    ListedKind("zone", "zones", ("",), all_zones),
)
ROUTES = tuple(route for kind in KINDS for route in kind.build_routes())
