"""Checks available machines: pools of capacity, reservations and quotas, computed each time."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from tpuherd.catalogue import accelerators, generations
from tpuherd_sim.model.records import HOLDING, Node, RpcStatus
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu import errors, ip_addresses
from tpuherd_sim.tpu.names import region_of_zone

IN_USE_ADDRESSES = "IN_USE_ADDRESSES"  #: a region's external addresses
WHOLE = "-"  #: the place of a global quota
#: The quota of a type: generation → stem, unit and dimension.
QUOTAS: Mapping[str, tuple[str, str, str]] = {
    "v2": ("V2s", "cores", "Zone"),
    "v3": ("V3s", "cores", "Zone"),
    "v4": ("V4s", "cores", "Zone"),
    "v5e": ("V5s", "chips", "Zone"),
    "v5p": ("V5P", "cores", "Zone"),
    "v6e": ("V6E", "chips", "Region"),
}


def quota_id(type: str, spot: bool) -> tuple[str, int]:
    """Return the quota of a node of this type, and how much of it the node uses."""
    one = accelerators()[type]
    stem, unit, place = QUOTAS[one.generation]
    single = one.hosts == 1
    part = {"v4": "Pod", "v5e": "LitepodServing" if single else "Litepod"}.get(one.generation, "")
    if one.generation in ("v2", "v3") and not single:
        part = "Pod"
    tier = "Preemptible" if spot else ""
    amount = one.cores if unit == "cores" else one.chips
    return f"TPU{stem}{tier}{part}PerProjectPer{place}ForTPUAPI", amount


def quota_ids(pattern: str) -> list[str]:
    """Return every quota that matches an id, a pattern of ids, or a family such as v4
    or v5litepod.
    """
    known = {
        quota_id(one.type, spot)[0]: one.generation
        for one in accelerators().values()
        if one.generation in QUOTAS
        for spot in (False, True)
    }
    family = {one.prefix: one.name for one in generations().values()}.get(pattern, pattern)
    every = [*known, CREATE_RATE, REQUESTS, IN_USE_ADDRESSES]
    return [id for id in every if fnmatchcase(id, pattern) or known.get(id) == family]


def quota_place(quota: str, zone: str) -> str:
    """Return the place where a quota is counted for a zone."""
    if quota == CREATE_RATE:
        return WHOLE
    return region_of_zone(zone) if "PerRegion" in quota or quota == IN_USE_ADDRESSES else zone


def quota_holders(world: World) -> Iterator[tuple[str, str, bool]]:
    """Yield zone, type and tier of what uses quota; dead nodes do until they are deleted."""
    for node in world.nodes.values():
        if node.queued_resource is None and not node.is_reserved:
            yield node.zone, node.type, node.is_spot
    for request in world.requests.values():
        if request.tier != "guaranteed":
            for slot in request.slots:
                yield request.zone, slot.type, request.tier != "on-demand"


def check_quota(world: World, zone: str, types: Iterable[str], *, spot: bool) -> None:
    """Refuse a request above the project's quota."""
    if not world.books.quotas:
        return
    wanted: dict[str, int] = {}
    for type in types:
        id, amount = quota_id(type, spot)
        wanted[id] = wanted.get(id, 0) + amount
    for id, amount in wanted.items():
        place = quota_place(id, zone)
        limit = world.books.quotas.get(f"{place}/{id}")
        if limit is None or used_quota(world, id, place) + amount <= limit:
            continue
        if place == zone:
            text = f"Quota '{id}' exhausted. Limit {limit} in zone {zone}"
        else:
            text = f"Quota limit '{id}' has been exceeded. Limit: {limit} in region {place}."
        metric = f"tpu.googleapis.com/{id.partition('PerProject')[0].lower()}"
        raise errors.quota_error(world, text, limit_id=id, metric=metric, place=place)


def used_quota(world: World, id: str, place: str) -> int:
    total = 0
    for zone, type, spot in quota_holders(world):
        name, amount = quota_id(type, spot)
        if name == id and quota_place(id, zone) == place:
            total += amount
    return total


def running_nodes(world: World, zone: str, pattern: str) -> list[Node]:
    """Return the nodes that hold machines of a pool."""
    return [
        node
        for node in world.nodes.values()
        if node.zone == zone
        and node.workers
        and node.state in HOLDING
        and not node.is_reserved
        and fnmatchcase(node.type, pattern)
    ]


def pools_for_type(world: World, zone: str, type: str) -> Iterator[tuple[str, int]]:
    """Yield the pools that a node of this type uses, and their sizes."""
    for key, limit in world.weather.capacity.items():
        place, _, pattern = key.partition("/")
        if place == zone and fnmatchcase(type, pattern):
            yield pattern, limit


def capacity_refusal(
    world: World, zone: str, types: Iterable[str], now: float, *, reserved: str | None = None
) -> RpcStatus | None:
    """Return why there are no machines for nodes of these types, or None."""
    asked = list(types)
    if reserved is not None:
        return reservation_refusal(world, zone, asked, reserved, now)
    if world.weather.capacity:
        for type in set(asked):
            for pattern, limit in pools_for_type(world, zone, type):
                more = sum(fnmatchcase(one, pattern) for one in asked)
                if len(running_nodes(world, zone, pattern)) + more > limit:
                    return errors.operation_error(world, now, zone, 8)
    return None


def reservation_refusal(
    world: World, zone: str, types: list[str], name: str, now: float
) -> RpcStatus | None:
    """Check a known reservation's chips; unknown reservations are granted."""
    id = name.rpartition("/")[2]
    reservations = [
        one
        for one in world.books.reservations.values()
        if one.zone == zone and id in (one.id, "-", "") and one.type in types
    ]
    if not reservations:
        return None
    size = sum(one.size for one in reservations if one.start <= now < one.end)
    chips = sum(accelerators()[one].chips for one in types)
    if reserved_chips(world, zone, set(types)) + chips <= size:
        return None
    return errors.operation_error(world, now, zone, 8, errors.TEXT_OF_CODE[9])


def reserved_chips(world: World, zone: str, types: Iterable[str]) -> int:
    wanted = set(types)
    return sum(
        accelerators()[node.type].chips
        for node in world.nodes.values()
        if node.zone == zone and node.is_reserved and node.workers and node.type in wanted
    )


def address_refusal(world: World, zone: str, hosts: int, now: float) -> RpcStatus | None:
    """Return why the hosts can't have external addresses, or None."""
    limit = world.books.quotas.get(f"{region_of_zone(zone)}/{IN_USE_ADDRESSES}")
    if limit is None and hosts <= ip_addresses.count_free_external(world):
        return None
    limit = ip_addresses.EXTERNAL_MAX if limit is None else limit
    taken = sum(
        worker.external_ip is not None
        for node in world.nodes.values()
        if region_of_zone(node.zone) == region_of_zone(zone)
        for worker in node.workers
    )
    if taken + hosts <= limit and hosts <= ip_addresses.count_free_external(world):
        return None
    text = (
        f"Quota '{IN_USE_ADDRESSES}' exceeded. Limit: {float(limit)} in region "
        f"{region_of_zone(zone)}. "
        "[EID: {eid}]"
    )
    return errors.operation_error(world, now, zone, 8, text)


CREATES_PER_MINUTE = 91
CREATE_RATE = "qps/create"  #: the quota id of `IN_USE_ADDRESSES`
REQUESTS = "QueuedResourcesPerProjectPerZoneForTPUAPI"
