"""What happens to nodes by itself: they get machines, become READY, start, stop and go."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tpuherd.catalogue import accelerators
from tpuherd_sim.model.records import DEAD, MOVING, Node, Operation, Status
from tpuherd_sim.model.strike_rules import strike
from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import World, note, plan, scaled
from tpuherd_sim.model.world_parts import Due
from tpuherd_sim.tpu import machines, operations, quota_and_stock
from tpuherd_sim.tpu.durations import DAY_S, RETRY_S_MAX, UPDATE_S, throw
from tpuherd_sim.tpu.errors import bad_request, operation_error
from tpuherd_sim.tpu.timestamps import timestamp
from tpuherd_sim.tpu.writes import current, drop, put, same_node, step

ABANDONED = Status(code=10, message="The node was deleted before it was there.")


def born(world: World, node: Node, now: float) -> Node:
    """A node is asked for: it gets its number, and no machines yet."""
    note(world, now, "node.created", node=node.key, type=node.type, spot=node.spot)
    return replace(node, uid=machines.new_uid(world))


def reservation(node: Node) -> str | None:
    """Out of which reservation a node comes; None: out of none."""
    name: str = node.spec.get("schedulingConfig", {}).get("reservationName", "")
    return name if node.reserved else None


def failure(world: World, node: Node, method: str, now: float) -> Status | None:
    """How the weather wants an operation on a node to end."""
    rule = strike(world, "operation-error", now, method=method, **machines.facts(node))
    return rule_status(world, rule, node.zone, now) if rule else None


def rule_status(world: World, rule: Rule, zone: str, now: float) -> Status:
    """The error that a rule of the weather names."""
    code, message = int(rule.params.get("code", 8)), str(rule.params.get("message") or "")
    return operation_error(world, now, zone, code, message)


def place(world: World, due: Due) -> None:
    """A node of its own gets machines, or is refused."""
    node = current(world, due)
    if node is None:
        return
    now = due.at
    hosts = accelerators()[node.type].hosts if machines.has_external(node) else 0
    error = (
        failure(world, node, "nodes.create", now)
        or quota_and_stock.refusal(world, node.zone, [node.type], now, reserved=reservation(node))
        or quota_and_stock.address_refusal(world, node.zone, hosts, now)
    )
    if error is not None:
        refuse(world, node, error, now)
        return
    rule = strike(world, "slow-provisioning", now, **machines.facts(node))
    span = "node.ready" if hosts_of(node) == 1 else "node.ready.pod"
    lasts = throw(world, span, float(rule.params.get("factor", 4.0)) if rule else 1.0)
    node = machines.settle(world, node, now)
    step(world, node, now, max(node.created + lasts, now), "node.ready")


def hosts_of(node: Node) -> int:
    """How many hosts it has, or will have."""
    return accelerators()[node.type].hosts


def refuse(world: World, node: Node, error: Status, now: float) -> None:
    """A node can't be had: its operation says why, and it is not there any more."""
    note(world, now, "node.refused", node=node.key, code=error.code, why=error.message)
    operations.finish(world, node.operation, now, error=error)
    remove(world, node, now)


def ready(world: World, due: Due) -> None:
    """The time for a node to be READY has come; it is, if its hosts are."""
    node = current(world, due)
    if node is None:
        return
    if node.state == "CREATING" and node.queued_resource and fails(world, node, due.at):
        return
    node = put(world, replace(node, pending=0, due_at=due.at), due.at)
    arrive_if_up(world, node, due.at)


def fails(world: World, node: Node, now: float) -> bool:
    """Whether the weather lets a queued resource's node fail: it is tried again for a while."""
    error = failure(world, node, "nodes.create", now)
    if error is None:
        return False
    if now - node.created < scaled(world, RETRY_S_MAX):
        note(world, now, "node.retried", node=node.key, why=error.message)
        step(world, node, now, now + throw(world, "request.retry"), "node.ready")
    else:
        key = f"{node.zone}/{node.queued_resource}"
        plan(world, now, "request.failed", key, code=error.code, message=error.message)
    return True


def arrive_if_up(world: World, node: Node, now: float) -> None:
    """READY, once the time has come and all hosts are up."""
    timely = node.due_at > 0.0 and node.pending == 0 and node.state in MOVING
    if timely and (not world.settings.real_hosts or machines.all_up(node)):
        arrive(world, node, now)


def arrive(world: World, node: Node, now: float) -> None:
    """The node is READY."""
    born = node.state == "CREATING"
    health, description = "HEALTHY", node.health_description
    if born and strike(world, "born-unhealthy", now, **machines.facts(node)):
        health = "UNHEALTHY_MAINTENANCE"
        description = f"The TPU had a maintenance event at {timestamp(now)}"
    operation = node.operation
    node = put(
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
    note(world, now, "node.ready", node=node.key, health=health)
    operations.finish(world, operation, now, node=node)
    if born and node.spec.get("schedulingConfig", {}).get("preemptible"):
        plan(world, now + scaled(world, DAY_S), "node.expire", node.key, uid=node.uid)
    if node.queued_resource:
        plan(world, now, "request.look", f"{node.zone}/{node.queued_resource}")


def delete(world: World, node: Node, now: float, *, operation: str | None = None) -> Node:
    """A node begins to go. Whatever was under way for it is off."""
    if node.state in MOVING:
        operations.finish(world, node.operation, now, error=ABANDONED)
    note(world, now, "node.deleted", node=node.key)
    node = replace(
        machines.press(node), state="DELETING", operation=operation, due_at=0.0, upcoming=None
    )
    return step(world, node, now, now + throw(world, "node.delete"), "node.gone")


def gone(world: World, due: Due) -> None:
    """A deleted node is not there any more."""
    node = current(world, due)
    if node is not None:
        remove(world, node, due.at)


def remove(world: World, node: Node, now: float) -> None:
    """Node and machines are no more."""
    drop(world, node, now)
    machines.take_away(world, node, now)
    note(world, now, "node.gone", node=node.key)
    operations.finish(world, node.operation, now)


def lost(world: World, node: Node, now: float, initiator: str) -> None:
    """Its queued resource will notice what became of a node."""
    if node.queued_resource:
        key = f"{node.zone}/{node.queued_resource}"
        at = now + throw(world, "request.look")
        plan(world, at, "request.look", key, initiator=initiator)


def reclaim(world: World, node: Node, now: float, state: str = "PREEMPTED") -> None:
    """A node loses its machines for good: a direct one stays as a husk, a queued one is gone."""
    note(world, now, f"node.{state.lower()}", node=node.key)
    if node.state in MOVING and node.operation:
        text = bad_request(world, now, f"update is not supported while in state {state}")
        operations.finish(world, node.operation, now, error=Status(code=3, message=text))
    if node.queued_resource:
        remove(world, node, now)
        lost(world, node, now, "SERVICE")
        return
    node = machines.power_off(world, node)
    put(
        world,
        replace(node, state=state, health="", pending=0, due_at=0.0, operation=None, upcoming=None),
        now,
    )
    machines.freed(world, node.zone, now)


def stop(world: World, node: Node, now: float, operation: str) -> Node:
    """A node begins to stop."""
    node = replace(machines.press(node), state="STOPPING", operation=operation)
    return step(world, node, now, now + throw(world, "node.stop"), "node.stopped")


def stopped(world: World, due: Due) -> None:
    """A node is stopped: its disk and its name are kept, its TPU and external address are not."""
    node = current(world, due)
    if node is None:
        return
    operation = node.operation
    node = replace(
        machines.power_off(world, node), state="STOPPED", pending=0, operation=None, health=""
    )
    note(world, due.at, "node.stopped", node=node.key)
    operations.finish(world, operation, due.at, node=put(world, node, due.at))
    machines.freed(world, node.zone, due.at)


def start(world: World, node: Node, now: float, operation: str) -> Node:
    """A stopped node begins to start."""
    node = replace(node, state="STARTING", operation=operation)
    return step(world, node, now, now + throw(world, "node.start.place"), "node.restart")


def restart(world: World, due: Due) -> None:
    """A starting node gets a TPU again, if there is one, and another external address."""
    node = current(world, due)
    if node is None:
        return
    now = due.at
    held = replace(node, state="STOPPED")
    put(world, held, now)  # it must not count itself
    error = quota_and_stock.refusal(
        world, node.zone, [node.type], now, reserved=reservation(node)
    ) or quota_and_stock.address_refusal(world, node.zone, hosts_of(node), now)
    if error is not None:
        put(world, replace(held, pending=0, operation=None), now)
        operations.finish(world, node.operation, now, error=error)
        return
    node = machines.power_on(world, node, new_external=True)
    step(world, node, now, now + throw(world, "node.start"), "node.ready")


def reimage(world: World, node: Node, now: float, runtime: str, operation: str) -> Node:
    """A node starts anew with another runtime."""
    node = machines.power_on(world, node, new_external=False)
    node = replace(node, state="REIMAGING", runtime=runtime, operation=operation)
    return step(world, node, now, now + throw(world, "node.start"), "node.ready")


def cancel(world: World, due: Due) -> None:
    """Somebody gave up a node that is being created."""
    operation = world.operations.get(due.target)
    if operation is None or operation.ended is not None:
        return
    node = world.nodes.get(f"{operation.zone}/{operation.target}")
    if node is not None and node.operation == operation.key and node.state == "CREATING":
        operations.finish(world, operation.key, due.at, error=operations.CANCELLED)
        delete(world, replace(node, operation=None), due.at)


def update(
    world: World, node: Node, now: float, operation: Operation, fields: Mapping[str, Any]
) -> None:
    """Fields of a node will be otherwise in a moment; None = absent."""
    at = now + scaled(world, UPDATE_S)
    facts = {"uid": node.uid, "fields": dict(fields), "operation": operation.key}
    plan(world, at, "node.updated", node.key, **facts)


def updated(world: World, due: Due) -> None:
    """Fields of a node are otherwise."""
    node, now = same_node(world, due), due.at
    if node is None or node.state in DEAD or node.state == "DELETING":
        state = node.state if node is not None else "DELETING"
        text = bad_request(world, now, f"update is not supported while in state {state}")
        error = Status(code=3, message=text)
        operations.finish(world, due.args["operation"], now, error=error)
        return
    spec = {**node.spec, **due.args["fields"]}
    before = machines.has_external(node)
    node = replace(node, spec={name: value for name, value in spec.items() if value is not None})
    if machines.has_external(node) != before:
        node = machines.readdress(world, node)
    node = put(world, node, now)
    operations.finish(world, due.args["operation"], now, node=node)


AGENDA: dict[str, Callable[[World, Due], None]] = {
    "node.place": place,
    "node.ready": ready,
    "node.gone": gone,
    "node.stopped": stopped,
    "node.restart": restart,
    "node.cancel": cancel,
    "node.updated": updated,
}
