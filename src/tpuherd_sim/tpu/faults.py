"""Faults of nodes and hosts, from which the weather is made."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tpuherd_sim.model.http_types import ApiError
from tpuherd_sim.model.records import HOLDING, Node, Worker
from tpuherd_sim.model.world import World, log_event, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu import host_repairs, lifecycle, machines, maintenance
from tpuherd_sim.tpu.writes import put_node, same_node, with_worker

NOTICE_S = 30.0


def known_node(world: World, key: str) -> Node:
    node = world.nodes.get(key)
    if node is None:
        raise ApiError(404, "NOT_FOUND", f"There is no node {key}.")
    return node


def known_worker(world: World, key: str, worker: int) -> tuple[Node, Worker]:
    node = known_node(world, key)
    if not 0 <= worker < len(node.workers):
        raise ApiError(404, "NOT_FOUND", f"Node {key} has no worker {worker}.")
    return node, node.workers[worker]


def preempt_node(
    world: World,
    node_key: str,
    now: float,
    *,
    notice_s: float = NOTICE_S,
    flag: bool = True,
    acpi: bool = True,
) -> None:
    """Preempt a node: warn it now and power it off after the notice."""
    node = known_node(world, node_key)
    if node.state not in HOLDING or node.state == "DELETING":
        return
    if notice_s <= 0.0:
        lifecycle.reclaim_node(world, node, now)
        return
    if acpi:
        node = machines.press_power_buttons(node)
    put_node(world, replace(node, preempted=node.preempted or flag), now)
    log_event(world, now, "node.warned", node=node_key, notice_s=notice_s)
    schedule_event(world, now + notice_s, "node.preempt", node_key, uid=node.uid, state="PREEMPTED")


def finish_preemption(world: World, due: AgendaItem) -> None:
    node = same_node(world, due)
    if node is not None and node.state in HOLDING and node.state != "DELETING":
        lifecycle.reclaim_node(world, node, due.at, due.args["state"])


def expire_node(world: World, due: AgendaItem) -> None:
    """Preempt a preemptible node after a day."""
    node = same_node(world, due)
    if node is not None and node.state in HOLDING and node.state != "DELETING":
        put_node(world, replace(machines.press_power_buttons(node), preempted=True), due.at)
        at = due.at + NOTICE_S
        schedule_event(world, at, "node.preempt", node.key, uid=node.uid, state="TERMINATED")


def maintain_node(
    world: World,
    node_key: str,
    now: float,
    *,
    notice_s: float,
    duration_s: float,
    change_ip: bool = True,
) -> None:
    """Announce maintenance and schedule it."""
    node = known_node(world, node_key)
    maintenance.announce_maintenance(
        world, node, now, notice_s=notice_s, duration_s=duration_s, change_ip=change_ip
    )


def reboot_host(
    world: World,
    node_key: str,
    worker: int,
    now: float,
    *,
    soft_s: float = 0.0,
    change_ip: bool = False,
) -> None:
    """Reboot one host with the same disk: at once, or in order with SIGTERM before."""
    node, host = known_worker(world, node_key, worker)
    if not host.on:
        return
    if soft_s <= 0.0:
        log_event(world, now, "host.rebooted", node=node_key, worker=worker)
        host = machines.restart_worker(world, node, host, new_external=change_ip)
    else:
        facts = {"uid": node.uid, "worker": worker, "boot": host.boot, "change_ip": change_ip}
        schedule_event(world, now + soft_s, "host.restart", node_key, **facts)
        host = replace(host, soft_off=host.soft_off + 1, restarting=True)
    put_node(world, with_worker(node, host), now)


def finish_reboot(world: World, due: AgendaItem) -> None:
    """Reboot the host after its shutdown, unless it has ended otherwise meanwhile."""
    node, worker, change_ip = same_node(world, due), due.args["worker"], due.args["change_ip"]
    if node is not None and node.workers and node.workers[worker].boot == due.args["boot"]:
        reboot_host(world, node.key, worker, due.at, change_ip=change_ip)


def alter_host(world: World, node_key: str, worker: int, now: float, **fields: Any) -> None:
    """Set fields of a host's worker: hung, network, ssh, disk_full, …"""
    node, host = known_worker(world, node_key, worker)
    put_node(world, with_worker(node, replace(host, **fields)), now)


def alter_node(world: World, node_key: str, now: float, **fields: Any) -> None:
    """Set fields of a node: health, health_description, symptoms."""
    put_node(world, replace(known_node(world, node_key), **fields), now)


def lose_host(world: World, node_key: str, worker: int, now: float) -> None:
    """Crash a host: power is lost now; the service notices later and repairs it."""
    node, host = known_worker(world, node_key, worker)
    log_event(world, now, "host.lost", node=node_key, worker=worker)
    host_repairs.lose_power(world, node, host, now)


AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {
    "node.preempt": finish_preemption,
    "node.expire": expire_node,
    "host.restart": finish_reboot,
}
