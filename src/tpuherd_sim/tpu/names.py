"""Resource names and their validation."""

import re

from tpuherd.catalogue import regions, zones
from tpuherd_sim.model.http_types import ApiCall, ApiError
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.errors import bad_request_error, permission_denied_error, zone_denied_error

#: Nodes and the prefixes of their names: what the API's schema demands, …
ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
#: … and what the service demands on top of it.
HOST_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
ID_CHARS_MAX = 63
ANY = "-"  #: the wildcard zone
ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")


def resource_name(world: World, zone: str, collection: str, id: str) -> str:
    """Return projects/demo/locations/us-central2-b/nodes/x."""
    return f"projects/{world.settings.project}/locations/{zone}/{collection}/{id}"


def region_of_zone(zone: str) -> str:
    """Return us-central2 for us-central2-b."""
    return zone.rpartition("-")[0]


def check_project(world: World, call: ApiCall, method: str) -> None:
    """Refuse projects other than the world's, which has a name and a number."""
    project = call.path["project"]
    if project in (world.settings.project, str(world.settings.project_number)):
        return
    collection, _, verb = method.partition(".")
    place = f"projects/{project}"
    if "zone" in call.path:
        place += f"/locations/{call.path['zone']}"
    raise permission_denied_error(f"tpu.{collection.lower()}.{verb}", place)


def check_zone(world: World, zone: str, now: float, *, wildcard: bool = False) -> None:
    """Refuse a zone without TPUs."""
    if zone in zones() or (wildcard and zone == ANY):
        return
    if ZONE.fullmatch(zone) and region_of_zone(zone) in regions():
        raise bad_request_error(world, now, f'The requested zone "{zone}" is not supported.')
    raise zone_denied_error(world, zone)


def check_id(id: str, *, field: str, kind: str) -> None:
    """Refuse a malformed id for a new resource."""
    if not id:
        raise ApiError(400, "INVALID_ARGUMENT", f"{field} must be set.")
    if not ID.fullmatch(id):
        text = f'Invalid {kind} id "{id}": it must match ^[A-Za-z0-9_.~+%-]+$'
        raise ApiError(400, "INVALID_ARGUMENT", text)
    if len(id) > ID_CHARS_MAX or not HOST_NAME.fullmatch(id):
        text = (
            f'Invalid {kind} id "{id}": it must begin with a lower-case letter, continue with '
            f"up to {ID_CHARS_MAX - 1} lower-case letters, digits or hyphens, and not end "
            "with a hyphen."
        )
        raise ApiError(400, "INVALID_ARGUMENT", text)
