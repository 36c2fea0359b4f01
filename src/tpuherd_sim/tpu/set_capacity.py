"""How much there is and how much the project may have: set by the weather and by scenarios."""

from tpuherd_sim.model.records import Reservation
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu import faults, machines, quota_and_stock


def set_capacity(world: World, zone: str, pattern: str, nodes: int | None, now: float) -> None:
    """So many nodes of the fitting types there can be; None = unlimited.

    Spot nodes above that are preempted, the youngest first; more serves who waits.
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
    """So much the project may have there; None = plenty. An id, a pattern of ids or a family."""
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
    """Machines are set aside for the project for a time."""
    world.books.reservations[f"{reservation.zone}/{reservation.id}"] = reservation
