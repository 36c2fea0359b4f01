"""Zones, and the types, runtimes and reservations in each."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuherd.catalogue import Zone, accelerators, runtimes, zones
from tpuherd_sim.model.http_types import ApiCall, Json, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.errors import JSON_HEADERS, not_found_error
from tpuherd_sim.tpu.listing import (
    ListedRecords,
    list_records,
    make_page_token,
    page_size,
    page_token,
)
from tpuherd_sim.tpu.names import ANY, check_zone, resource_name
from tpuherd_sim.tpu.quota_and_stock import reserved_chips
from tpuherd_sim.tpu.render import json_bytes, reservation_json
from tpuherd_sim.tpu.router import Route

KEY = "location/{}"


def location_json(world: World, zone: Zone) -> Json:
    return {
        "name": f"projects/{world.settings.project}/locations/{zone.name}",
        "locationId": zone.name,
        "labels": {"cloud.googleapis.com/region": zone.region},
    }


def list_locations(world: World, call: ApiCall, now: float) -> Response:
    """List every zone with TPUs."""
    size, after = page_size(call), page_token(call)
    names = [name for name in sorted(zones()) if KEY.format(name) > after]
    content: Json = {"locations": [location_json(world, zones()[name]) for name in names[:size]]}
    if len(names) > size:
        content["nextPageToken"] = make_page_token(KEY.format(names[size - 1]))
    return Response(body=json_bytes(content), headers=JSON_HEADERS)


def get_location(world: World, call: ApiCall, now: float) -> Json:
    check_zone(world, call.path["zone"], now)
    return location_json(world, zones()[call.path["zone"]])


def type_json(world: World, zone: str, type: str, version: str) -> Json:
    one = accelerators()[type]
    content: Json = {"name": resource_name(world, zone, "acceleratorTypes", type), "type": type}
    if version != "v1":
        content["acceleratorConfigs"] = [{"type": one.enum, "topology": one.topology}]
    return content


def types_in(zone: str) -> list[str]:
    """Return the accelerator types of a zone."""
    return sorted(zones()[zone].types)


def runtimes_in(zone: str) -> list[str]:
    """Return the runtime versions that some type of the zone supports."""
    here = {accelerators()[type].generation for type in zones()[zone].types}
    return sorted(one.version for one in runtimes().values() if one.generations & here)


def runtime_json(world: World, zone: str, runtime: str, version: str) -> Json:
    collection = "tensorflowVersions" if version == "v1" else "runtimeVersions"
    return {"name": resource_name(world, zone, collection, runtime), "version": runtime}


ZoneIds = Callable[[str], list[str]]
RenderRecord = Callable[[World, str, str, str], Json]


def make_list_handler(
    field: str, ids: ZoneIds, render: RenderRecord
) -> Callable[[World, ApiCall, float], Response]:
    """Return a handler that lists catalogue entries by zone."""

    def list_by_zone(world: World, call: ApiCall, now: float) -> Response:
        zone = call.path["zone"]
        check_zone(world, zone, now, wildcard=True)
        chosen = sorted(zones()) if zone == ANY else [zone]
        records = {f"{one}/{id}": (one, id) for one in chosen for id in ids(one)}

        def rendered(record: tuple[str, str]) -> bytes:
            return json_bytes(render(world, record[0], record[1], call.version))

        page = ListedRecords(field=field, records=records, render=rendered)
        return list_records(world, call, now, page)

    return list_by_zone


def make_get_handler(
    collection: str, ids: ZoneIds, render: RenderRecord
) -> Callable[[World, ApiCall, float], Json]:
    """Return a handler that gets one catalogue entry of a zone."""

    def get_by_id(world: World, call: ApiCall, now: float) -> Json:
        zone, id = call.path["zone"], call.path["id"]
        check_zone(world, zone, now)
        if id not in ids(zone):
            raise not_found_error(resource_name(world, zone, collection, id))
        return render(world, zone, id, call.version)

    return get_by_id


def get_service_identity(world: World, call: ApiCall, now: float) -> Json:
    """Return the service account of Cloud TPU in the project."""
    check_zone(world, call.path["zone"], now)
    number = world.settings.project_number
    return {"identity": {"email": f"service-{number}@cloud-tpu.iam.gserviceaccount.com"}}


def list_reservations(world: World, call: ApiCall, now: float) -> Response:
    """List the project's reservations."""

    def render(one: Any) -> bytes:
        used = reserved_chips(world, one.zone, [one.type])
        return json_bytes(reservation_json(world, one, used, now))

    page = ListedRecords(field="reservations", records=world.books.reservations, render=render)
    return list_records(world, call, now, page)


TABLES: Mapping[str, tuple[ZoneIds, RenderRecord]] = {
    "acceleratorTypes": (types_in, type_json),
    "runtimeVersions": (runtimes_in, runtime_json),
    "tensorflowVersions": (runtimes_in, runtime_json),
}
SERVED = {
    "v1": ("acceleratorTypes", "tensorflowVersions"),
    "v2": ("acceleratorTypes", "runtimeVersions"),
    "v2alpha1": ("acceleratorTypes", "runtimeVersions"),
}
ALL = "projects/{project}/locations"
ROUTES = (
    *(Route("GET", f"/{version}/{ALL}", list_locations) for version in SERVED),
    *(Route("GET", f"/{version}/{ALL}/{{zone}}", get_location) for version in SERVED),
    *(
        Route("GET", f"/{version}/{ALL}/{{zone}}/{name}", make_list_handler(name, *TABLES[name]))
        for version, names in SERVED.items()
        for name in names
    ),
    *(
        Route(
            "GET", f"/{version}/{ALL}/{{zone}}/{name}/{{id}}", make_get_handler(name, *TABLES[name])
        )
        for version, names in SERVED.items()
        for name in names
    ),
    *(
        Route("POST", f"/{version}/{ALL}/{{zone}}:generateServiceIdentity", get_service_identity)
        for version in ("v2", "v2alpha1")
    ),
    Route("GET", f"/v2alpha1/{ALL}/{{zone}}/reservations", list_reservations),
)
