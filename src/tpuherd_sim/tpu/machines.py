"""The machines of a node: created, powered, rebooted, addressed and released."""

from dataclasses import replace

from tpuherd.catalogue import accelerators
from tpuherd_sim.model.records import Node, Worker
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.tpu import ip_addresses


def has_external(node: Node) -> bool:
    """Whether the node's workers get external addresses."""
    spec = node.spec
    cards = spec.get("networkConfigs") or [spec.get("networkConfig", {})]
    return bool(cards[0].get("enableExternalIps"))


def node_facts(node: Node) -> dict[str, str]:
    """Return the facts of a node that a weather rule can match."""
    known = {"zone": node.zone, "type": node.type, "node": node.id}
    if node.queued_resource:
        known["request"] = node.queued_resource
    return known


def assign_machines(world: World, node: Node, now: float) -> Node:
    """Give a node its machines and power them on."""
    recycled = consume_rule(world, "recycle-ip", now, **node_facts(node)) is not None
    bare = worker_hit_by_weather(world, "no-external-ip", node, now)
    mute = worker_hit_by_weather(world, "unreachable-worker", node, now)
    stem = f"t1v-n-{world.dice.random_bits() >> 32:08x}"
    workers = []
    for index in range(accelerators()[node.type].hosts):
        external = has_external(node) and index != bare
        workers.append(
            Worker(
                index=index,
                uid=new_uid(world),
                name=f"{stem}-w-{index}",
                internal_ip=ip_addresses.allocate_internal(world, recycled=recycled),
                external_ip=ip_addresses.allocate_external(world, recycled=recycled)
                if external
                else None,
                ssh=index != mute,
            )
        )
    cidr = node.spec.get("cidrBlock") or ip_addresses.enclosing_subnet(workers[0].internal_ip)
    return replace(node, workers=tuple(workers), cidr=cidr)


def worker_hit_by_weather(world: World, kind: str, node: Node, now: float) -> int | None:
    """Return the worker of a new node that the weather chose."""
    rule = consume_rule(world, kind, now, **node_facts(node))
    return int(rule.params.get("worker", 0)) if rule else None


def new_uid(world: World) -> int:
    """Return a number for a node or an instance: 19 digits, like Google's."""
    return 10**18 + world.dice.random_bits() % (8 * 10**18)


def power_on(world: World, node: Node, *, new_external: bool) -> Node:
    """Power on or restart every host, optionally with new external addresses."""
    workers = []
    for worker in node.workers:
        external = worker.external_ip
        if has_external(node) and (new_external or external is None):
            ip_addresses.release_external(world, external)
            external = ip_addresses.allocate_external(world)
        workers.append(
            replace(worker, on=True, boot=worker.boot + 1, hung=False, external_ip=external)
        )
    return replace(node, workers=tuple(workers))


def power_off(world: World, node: Node, *, keep_external: bool = False) -> Node:
    """Power off every host and release its external address unless it is kept."""
    workers = []
    for worker in node.workers:
        external = worker.external_ip if keep_external else None
        if external is None:
            ip_addresses.release_external(world, worker.external_ip)
        workers.append(replace(worker, on=False, external_ip=external))
    return replace(node, workers=tuple(workers))


def press_power_buttons(node: Node) -> Node:
    """Press the power button of every running host: shutdown script, then SIGTERM to all."""
    pressed = (
        replace(worker, soft_off=worker.soft_off + 1, restarting=False) if worker.on else worker
        for worker in node.workers
    )
    return replace(node, workers=tuple(pressed))


def restart_worker(world: World, node: Node, worker: Worker, *, new_external: bool) -> Worker:
    """Boot a host again with the same disk, optionally with another external address."""
    external = worker.external_ip
    if new_external and has_external(node):
        ip_addresses.release_external(world, external)
        external = ip_addresses.allocate_external(world)
    return replace(worker, boot=worker.boot + 1, hung=False, restarting=False, external_ip=external)


def release_machines(world: World, node: Node, now: float) -> None:
    """Release addresses and capacity of a removed node."""
    for worker in node.workers:
        ip_addresses.release_external(world, worker.external_ip)
        ip_addresses.release_internal(world, worker.internal_ip)
    announce_freed_capacity(world, node.zone, now)


def announce_freed_capacity(world: World, zone: str, now: float) -> None:
    """Schedule a check of waiting requests."""
    if world.requests:
        schedule_event(world, now, "capacity.freed", zone)


def is_every_host_up(node: Node) -> bool:
    """Whether every host has reported that it booted."""
    return all(worker.on and worker.up == worker.boot for worker in node.workers)


def update_external_addresses(world: World, node: Node) -> Node:
    """Add or remove external addresses as the node's config demands."""
    workers = []
    for worker in node.workers:
        ip_addresses.release_external(world, worker.external_ip)
        external = (
            ip_addresses.allocate_external(world) if has_external(node) and worker.on else None
        )
        workers.append(replace(worker, external_ip=external))
    return replace(node, workers=tuple(workers))
