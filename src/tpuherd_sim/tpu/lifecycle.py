"""The lifecycle of nodes: they get machines, become READY, start, stop and are deleted.

Each step schedules the next on the agenda (`writes.step_node`); `AGENDA` maps events to functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tpuherd.catalogue import accelerators
from tpuherd_sim.model.records import DEAD, MOVING, Node, Operation, RpcStatus
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import World, log_event, scale_duration, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu import machines, operations, quota_and_stock
from tpuherd_sim.tpu.durations import DAY_S, RETRY_S_MAX, UPDATE_S, draw_duration
from tpuherd_sim.tpu.errors import bad_request_text, operation_error
from tpuherd_sim.tpu.timestamps import format_timestamp
from tpuherd_sim.tpu.writes import current_node, drop_node, put_node, same_node, step_node

ABANDONED = RpcStatus(code=10, message="The node was deleted before it was there.")


def register_node(world: World, node: Node, now: float) -> Node:
    """Add a requested node: it gets its number, and no machines yet."""
    log_event(world, now, "node.created", node=node.key, type=node.type, spot=node.is_spot)
    return replace(node, uid=machines.new_uid(world))


def reservation_name(node: Node) -> str | None:
    """Return the reservation of a node, if any."""
    name: str = node.spec.get("schedulingConfig", {}).get("reservationName", "")
    return name if node.is_reserved else None


def weather_failure(world: World, node: Node, method: str, now: float) -> RpcStatus | None:
    """Return the error with which the weather ends an operation on a node, if any."""
    rule = consume_rule(world, "operation-error", now, method=method, **machines.node_facts(node))
    return rule_status(world, rule, node.zone, now) if rule else None


def rule_status(world: World, rule: Rule, zone: str, now: float) -> RpcStatus:
    """Return the error that a weather rule specifies."""
    code, message = int(rule.params.get("code", 8)), str(rule.params.get("message") or "")
    return operation_error(world, now, zone, code, message)


def place_node(world: World, due: AgendaItem) -> None:
    """Give a direct node its machines, or refuse it."""
    node = current_node(world, due)
    if node is None:
        return
    now = due.at
    hosts = accelerators()[node.type].hosts if machines.has_external(node) else 0
    error = (
        weather_failure(world, node, "nodes.create", now)
        or quota_and_stock.capacity_refusal(
            world, node.zone, [node.type], now, reserved=reservation_name(node)
        )
        or quota_and_stock.address_refusal(world, node.zone, hosts, now)
    )
    if error is not None:
        refuse_node(world, node, error, now)
        return
    rule = consume_rule(world, "slow-provisioning", now, **machines.node_facts(node))
    span = "node.ready" if host_count(node) == 1 else "node.ready.pod"
    lasts = draw_duration(world, span, float(rule.params.get("factor", 4.0)) if rule else 1.0)
    node = machines.assign_machines(world, node, now)
    step_node(world, node, now, max(node.created + lasts, now), "node.ready")


def host_count(node: Node) -> int:
    """Return how many hosts the node has or will have."""
    return accelerators()[node.type].hosts


def refuse_node(world: World, node: Node, error: RpcStatus, now: float) -> None:
    """Remove a node that can't be created; its operation ends with the error."""
    log_event(world, now, "node.refused", node=node.key, code=error.code, why=error.message)
    operations.finish_operation(world, node.operation, now, error=error)
    remove_node(world, node, now)


def on_ready_due(world: World, due: AgendaItem) -> None:
    """Make a node READY after the usual time if its hosts are up."""
    node = current_node(world, due)
    if node is None:
        return
    if node.state == "CREATING" and node.queued_resource and fail_by_weather(world, node, due.at):
        return
    node = put_node(world, replace(node, pending=0, due_at=due.at), due.at)
    mark_ready_if_up(world, node, due.at)


def fail_by_weather(world: World, node: Node, now: float) -> bool:
    """Whether the weather makes a queued resource's node fail; it is retried for a while."""
    error = weather_failure(world, node, "nodes.create", now)
    if error is None:
        return False
    if now - node.created < scale_duration(world, RETRY_S_MAX):
        log_event(world, now, "node.retried", node=node.key, why=error.message)
        step_node(world, node, now, now + draw_duration(world, "request.retry"), "node.ready")
    else:
        key = f"{node.zone}/{node.queued_resource}"
        schedule_event(world, now, "request.failed", key, code=error.code, message=error.message)
    return True


def mark_ready_if_up(world: World, node: Node, now: float) -> None:
    """Make the node READY once the time has come and all hosts are up."""
    timely = node.due_at > 0.0 and node.pending == 0 and node.state in MOVING
    if timely and (not world.settings.real_hosts or machines.is_every_host_up(node)):
        mark_ready(world, node, now)


def mark_ready(world: World, node: Node, now: float) -> None:
    born = node.state == "CREATING"
    health, description = "HEALTHY", node.health_description
    if born and consume_rule(world, "born-unhealthy", now, **machines.node_facts(node)):
        health = "UNHEALTHY_MAINTENANCE"
        description = f"The TPU had a maintenance event at {format_timestamp(now)}"
    operation = node.operation
    node = put_node(
        world,
        replace(
            node,
            state="READY",
            health=health,
            health_description=description,
            due_at=0.0,
            operation=None,
            maintenance_event="NONE",
            upcoming=None if node.upcoming and node.upcoming.status == "ONGOING" else node.upcoming,
        ),
        now,
    )
    log_event(world, now, "node.ready", node=node.key, health=health)
    operations.finish_operation(world, operation, now, node=node)
    if born and node.spec.get("schedulingConfig", {}).get("preemptible"):
        schedule_event(
            world, now + scale_duration(world, DAY_S), "node.expire", node.key, uid=node.uid
        )
    if node.queued_resource:
        schedule_event(world, now, "request.look", f"{node.zone}/{node.queued_resource}")


def begin_delete(world: World, node: Node, now: float, *, operation: str | None = None) -> Node:
    """Start to delete a node; cancel whatever was under way for it."""
    if node.state in MOVING:
        operations.finish_operation(world, node.operation, now, error=ABANDONED)
    log_event(world, now, "node.deleted", node=node.key)
    node = replace(
        machines.press_power_buttons(node),
        state="DELETING",
        operation=operation,
        due_at=0.0,
        upcoming=None,
    )
    return step_node(world, node, now, now + draw_duration(world, "node.delete"), "node.gone")


def remove_deleted_node(world: World, due: AgendaItem) -> None:
    node = current_node(world, due)
    if node is not None:
        remove_node(world, node, due.at)


def remove_node(world: World, node: Node, now: float) -> None:
    """Remove a node and its machines."""
    drop_node(world, node, now)
    machines.release_machines(world, node, now)
    log_event(world, now, "node.gone", node=node.key)
    operations.finish_operation(world, node.operation, now)


def notify_queued_resource(world: World, node: Node, now: float, initiator: str) -> None:
    """Schedule a check of the queued resource after a change of its node."""
    if node.queued_resource:
        key = f"{node.zone}/{node.queued_resource}"
        at = now + draw_duration(world, "request.look")
        schedule_event(world, at, "request.look", key, initiator=initiator)


def reclaim_node(world: World, node: Node, now: float, state: str = "PREEMPTED") -> None:
    """Take a node's machines away for good: a direct node stays as a dead record, a queued one is
    removed.
    """
    log_event(world, now, f"node.{state.lower()}", node=node.key)
    if node.state in MOVING and node.operation:
        text = bad_request_text(world, now, f"update is not supported while in state {state}")
        operations.finish_operation(
            world, node.operation, now, error=RpcStatus(code=3, message=text)
        )
    if node.queued_resource:
        remove_node(world, node, now)
        notify_queued_resource(world, node, now, "SERVICE")
        return
    node = machines.power_off(world, node)
    put_node(
        world,
        replace(node, state=state, health="", pending=0, due_at=0.0, operation=None, upcoming=None),
        now,
    )
    machines.announce_freed_capacity(world, node.zone, now)


def begin_stop(world: World, node: Node, now: float, operation: str) -> Node:
    node = replace(machines.press_power_buttons(node), state="STOPPING", operation=operation)
    return step_node(world, node, now, now + draw_duration(world, "node.stop"), "node.stopped")


def finish_stop(world: World, due: AgendaItem) -> None:
    """Finish a stop: the node keeps its disk and name, but not its TPU and external address."""
    node = current_node(world, due)
    if node is None:
        return
    operation = node.operation
    node = replace(
        machines.power_off(world, node), state="STOPPED", pending=0, operation=None, health=""
    )
    log_event(world, due.at, "node.stopped", node=node.key)
    operations.finish_operation(world, operation, due.at, node=put_node(world, node, due.at))
    machines.announce_freed_capacity(world, node.zone, due.at)


def begin_start(world: World, node: Node, now: float, operation: str) -> Node:
    node = replace(node, state="STARTING", operation=operation)
    return step_node(
        world, node, now, now + draw_duration(world, "node.start.place"), "node.restart"
    )


def restart_node(world: World, due: AgendaItem) -> None:
    """Give a starting node a TPU, if one is available, and a new external address."""
    node = current_node(world, due)
    if node is None:
        return
    now = due.at
    held = replace(node, state="STOPPED")
    put_node(world, held, now)  # it must not count itself
    error = quota_and_stock.capacity_refusal(
        world, node.zone, [node.type], now, reserved=reservation_name(node)
    ) or quota_and_stock.address_refusal(world, node.zone, host_count(node), now)
    if error is not None:
        put_node(world, replace(held, pending=0, operation=None), now)
        operations.finish_operation(world, node.operation, now, error=error)
        return
    node = machines.power_on(world, node, new_external=True)
    step_node(world, node, now, now + draw_duration(world, "node.start"), "node.ready")


def begin_reimage(world: World, node: Node, now: float, runtime: str, operation: str) -> Node:
    """Restart a node with another runtime."""
    node = machines.power_on(world, node, new_external=False)
    node = replace(node, state="REIMAGING", runtime=runtime, operation=operation)
    return step_node(world, node, now, now + draw_duration(world, "node.start"), "node.ready")


def cancel_create(world: World, due: AgendaItem) -> None:
    """Cancel the creation of a node."""
    operation = world.operations.get(due.target)
    if operation is None or operation.ended is not None:
        return
    node = world.nodes.get(f"{operation.zone}/{operation.target}")
    if node is not None and node.operation == operation.key and node.state == "CREATING":
        operations.finish_operation(world, operation.key, due.at, error=operations.CANCELLED)
        begin_delete(world, replace(node, operation=None), due.at)


def schedule_update(
    world: World, node: Node, now: float, operation: Operation, fields: Mapping[str, Any]
) -> None:
    """Schedule a change of a node's fields; None removes a field."""
    at = now + scale_duration(world, UPDATE_S)
    facts = {"uid": node.uid, "fields": dict(fields), "operation": operation.key}
    schedule_event(world, at, "node.updated", node.key, **facts)


def apply_update(world: World, due: AgendaItem) -> None:
    node, now = same_node(world, due), due.at
    if node is None or node.state in DEAD or node.state == "DELETING":
        state = node.state if node is not None else "DELETING"
        text = bad_request_text(world, now, f"update is not supported while in state {state}")
        error = RpcStatus(code=3, message=text)
        operations.finish_operation(world, due.args["operation"], now, error=error)
        return
    spec = {**node.spec, **due.args["fields"]}
    before = machines.has_external(node)
    node = replace(node, spec={name: value for name, value in spec.items() if value is not None})
    if machines.has_external(node) != before:
        node = machines.update_external_addresses(world, node)
    node = put_node(world, node, now)
    operations.finish_operation(world, due.args["operation"], now, node=node)


AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {
    "node.place": place_node,
    "node.ready": on_ready_due,
    "node.gone": remove_deleted_node,
    "node.stopped": finish_stop,
    "node.restart": restart_node,
    "node.cancel": cancel_create,
    "node.updated": apply_update,
}
