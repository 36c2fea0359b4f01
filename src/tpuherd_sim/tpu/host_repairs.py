"""Handles hosts that boot, reboot, fail and are repaired."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tpuherd_sim.model.records import MOVING, GuestAttribute, Node, RpcStatus, Worker
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World, log_event, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu import lifecycle, machines
from tpuherd_sim.tpu.durations import draw_duration
from tpuherd_sim.tpu.timestamps import format_timestamp
from tpuherd_sim.tpu.writes import current_node, put_node, same_node, step_node, with_worker

#: Limits a host that writes without end.
GUEST_ATTRIBUTES_MAX = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class HostReport:
    """What a running host reports."""

    event: str  #: up, rebooted, off or failed
    boot: int  #: which boot the report is about
    why: str = ""


def apply_host_report(
    world: World, node: Node, worker: Worker, report: HostReport, now: float
) -> None:
    """Apply a report: up, rebooted from inside, off, or failed to boot."""
    event, boot, why = report.event, report.boot, report.why
    if boot != worker.boot:
        return  # a late report of an earlier boot
    log_event(world, now, f"host.{event}", node=node.key, worker=worker.index, boot=boot, why=why)
    if event == "up":
        worker = replace(worker, up=boot)
        lifecycle.mark_ready_if_up(world, put_node(world, with_worker(node, worker), now), now)
    elif event == "rebooted":
        put_node(world, with_worker(node, replace(worker, boot=boot + 1)), now)
    elif node.state == "CREATING" and event == "failed":
        text = (
            f"an internal error has occurred: {worker.name} did not come up ({why or 'no reason'})"
        )
        if node.queued_resource:
            key = f"{node.zone}/{node.queued_resource}"
            schedule_event(world, now, "request.failed", key, code=13, message=text)
        else:
            lifecycle.refuse_node(world, node, RpcStatus(code=13, message=text), now)
    else:
        lose_power(world, node, worker, now)


def store_guest_attribute(
    world: World, node: Node, worker: Worker, fresh: GuestAttribute, now: float
) -> None:
    """Store a guest attribute, which the weather may delay."""
    rule = consume_rule(world, "slow-keys", now, **machines.node_facts(node))
    if rule is None:
        put_node(world, with_worker(node, with_guest_attribute(worker, fresh)), now)
        return
    at = now + float(rule.params.get("seconds", 60.0))
    facts = {"namespace": fresh.namespace, "name": fresh.name, "value": fresh.value}
    schedule_event(world, at, "host.told", node.key, uid=node.uid, worker=worker.index, **facts)


def show_guest_attribute(world: World, due: AgendaItem) -> None:
    """Show a delayed guest attribute."""
    node, facts = same_node(world, due), due.args
    if node is not None and facts["worker"] < len(node.workers):
        fresh = GuestAttribute(
            namespace=facts["namespace"], name=facts["name"], value=facts["value"]
        )
        worker = with_guest_attribute(node.workers[facts["worker"]], fresh)
        put_node(world, with_worker(node, worker), due.at)


def with_guest_attribute(worker: Worker, fresh: GuestAttribute) -> Worker:
    """Return the worker with a new or changed guest attribute."""
    name = (fresh.namespace, fresh.name)
    kept = [one for one in worker.guest if (one.namespace, one.name) != name]
    return replace(worker, guest=(*kept, fresh)[-GUEST_ATTRIBUTES_MAX:])


def lose_power(world: World, node: Node, worker: Worker, now: float) -> None:
    """Power off a host. The service will notice and repair the node."""
    node = put_node(world, with_worker(node, replace(worker, on=False)), now)
    if node.state == "READY":
        at = now + draw_duration(world, "node.notice")
        schedule_event(world, at, "node.repair", node.key, uid=node.uid)
    elif node.state in MOVING and node.state != "STOPPING":
        # The repair was already under way: it takes longer now.
        step_node(world, node, now, now + draw_duration(world, "node.repair"), "node.repaired")


def begin_repair(world: World, due: AgendaItem) -> None:
    """Start to repair the node after the service noticed a lost host."""
    node = same_node(world, due)
    if node is None or node.state != "READY" or all(worker.on for worker in node.workers):
        return
    log_event(world, due.at, "node.repairing", node=node.key)
    node = replace(
        node,
        state="REPAIRING",
        health="TIMEOUT",
        health_description=f"The TPU did not respond at {format_timestamp(due.at)}",
    )
    step_node(world, node, due.at, due.at + draw_duration(world, "node.repair"), "node.repaired")


def finish_repair(world: World, due: AgendaItem) -> None:
    """Power on the lost hosts; the node is READY when they are up."""
    node = current_node(world, due)
    if node is None:
        return
    workers = tuple(
        worker if worker.on else replace(worker, on=True, hung=False, boot=worker.boot + 1)
        for worker in node.workers
    )
    node = put_node(world, replace(node, workers=workers, pending=0, due_at=due.at), due.at)
    lifecycle.mark_ready_if_up(world, node, due.at)


AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {
    "host.told": show_guest_attribute,
    "node.repair": begin_repair,
    "node.repaired": finish_repair,
}
