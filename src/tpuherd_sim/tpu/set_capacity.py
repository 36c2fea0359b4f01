"""Sets capacity and quotas, for the weather and scenarios."""

from tpuherd_sim.model.records import Reservation
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu import faults, machines, quota_and_stock


def set_capacity(world: World, zone: str, pattern: str, nodes: int | None, now: float) -> None:
    """Set how many nodes of the matching types can exist; None = unlimited.

    Surplus spot nodes are preempted, the youngest first; new capacity serves waiting requests.
    """
    key = f"{zone}/{pattern}"
    if nodes is None:
        world.weather.capacity.pop(key, None)
    else:
        world.weather.capacity[key] = nodes
        running = [
            node
            for node in quota_and_stock.running_nodes(world, zone, pattern)
            if node.state != "DELETING"
        ]
        leaving = sum(node.preempted for node in running)
        surplus = len(running) - leaving - nodes
        spot = [node for node in running if node.is_spot and not node.preempted]
        spot.sort(key=lambda node: (node.created, node.id), reverse=True)
        for node in spot[: max(surplus, 0)]:
            faults.preempt_node(world, node.key, now)
    machines.announce_freed_capacity(world, zone, now)


def set_quota(world: World, zone: str, quota_id: str, limit: int | None, now: float) -> None:
    """Set a quota by id, pattern of ids or family; None = the generous default."""
    ids = quota_and_stock.quota_ids(quota_id) or [quota_id]
    for id in ids:
        key = f"{quota_and_stock.quota_place(id, zone)}/{id}"
        if limit is None:
            world.books.quotas.pop(key, None)
        else:
            world.books.quotas[key] = limit
            if id == quota_and_stock.CREATE_RATE:
                world.books.tokens, world.books.tokens_at = float(limit), now


def add_reservation(world: World, reservation: Reservation) -> None:
    """Reserve machines for the project."""
    world.books.reservations[f"{reservation.zone}/{reservation.id}"] = reservation
