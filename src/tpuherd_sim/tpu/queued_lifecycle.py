"""The lifecycle of queued resources: they wait, get nodes, lose them and are deleted.

Each step schedules the next on the agenda (`writes.step_request`); `AGENDA` maps events to
functions.
"""

from collections.abc import Callable
from dataclasses import replace

from tpuherd.catalogue import accelerators
from tpuherd_sim.model.records import Multislice, Node, QueuedResource, RpcStatus
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World, log_event, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu import lifecycle, machines, operations, quota_and_stock
from tpuherd_sim.tpu.defaults import complete_spec
from tpuherd_sim.tpu.durations import draw_duration
from tpuherd_sim.tpu.writes import (
    current_request,
    drop_request,
    put_node,
    put_request,
    step_node,
    step_request,
)

#: States before provisioning.
WAITING = frozenset({"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"})
EXPIRED = RpcStatus(
    code=4,
    message="The queued resource could not be provisioned within its valid-until constraint.",
)
WITHOUT_FLEX_START = frozenset({"v2", "v3", "v4"})


def request_facts(request: QueuedResource) -> dict[str, str]:
    """Return the facts of a queued resource that a weather rule can match."""
    types = {"type": request.slots[0].type} if request.slots else {}
    return {"zone": request.zone, "request": request.id, **types}


def request_nodes(world: World, request: QueuedResource) -> list[Node]:
    """Return the request's existing nodes."""
    keys = (f"{request.zone}/{slot.node_id}" for slot in request.slots)
    found = (world.nodes.get(key) for key in keys)
    return [one for one in found if one is not None and one.queued_resource == request.id]


def admit_request(world: World, due: AgendaItem) -> None:
    """Accept a request and finish its create operation."""
    request = current_request(world, due)
    if request is None:
        return
    now = due.at
    operation = request.operation
    error = unsupported_error(request)
    if error is not None:
        drop_request(world, request, now)
        operations.finish_operation(world, operation, now, error=error)
        return
    at = max(now + draw_duration(world, "request.accepted"), request.valid_after or now)
    request = step_request(
        world, request, now, at, "request.queued", state="ACCEPTED", operation=None
    )
    operations.finish_operation(world, operation, now, request=request)


def unsupported_error(request: QueuedResource) -> RpcStatus | None:
    """Return an error if flex-start is requested for an older generation, which lacks it."""
    if request.spec.get("provisioningModel") != "FLEX_START":
        return None
    for slot in request.slots:
        if accelerators()[slot.type].generation in WITHOUT_FLEX_START:
            text = (
                "FLEX_START provisioning model is not supported for accelerator type "
                f'"{slot.type}" in location "{request.zone}"'
            )
            return RpcStatus(code=3, message=text)
    return None


def begin_waiting(world: World, due: AgendaItem) -> None:
    """Start to wait for resources; a guaranteed request stays ACCEPTED meanwhile."""
    request = current_request(world, due)
    if request is None:
        return
    state = "ACCEPTED" if request.tier == "guaranteed" else "WAITING_FOR_RESOURCES"
    at = due.at + draw_duration(world, "request.wait")
    step_request(world, request, due.at, at, "request.serve", state=state)


def serve_request(world: World, due: AgendaItem) -> None:
    """Provision a request if machines are available; else it keeps waiting."""
    request = current_request(world, due)
    if request is not None:
        request = put_request(world, replace(request, pending=0), due.at)
        serve_if_room(world, request, due.at)


def serve_waiting_requests(world: World, due: AgendaItem) -> None:
    """Serve waiting requests after machines became free, the oldest first."""
    waiting = [
        request
        for request in world.requests.values()
        if request.zone == due.target
        and request.pending == 0
        and request.state in ("ACCEPTED", "WAITING_FOR_RESOURCES")
    ]
    for request in sorted(waiting, key=lambda one: (one.created, one.id)):
        serve_if_room(world, request, due.at)


def serve_if_room(world: World, request: QueuedResource, now: float) -> None:
    """Start to provision all nodes or none."""
    reserved = request.spec.get("reservationName", "") if request.tier == "guaranteed" else None
    types = [slot.type for slot in request.slots]
    refusal = quota_and_stock.capacity_refusal(world, request.zone, types, now, reserved=reserved)
    hosts = sum(
        lifecycle.host_count(node)
        for node in outline_nodes(world, request, now)
        if machines.has_external(node)
    )
    if refusal is None and quota_and_stock.address_refusal(world, request.zone, hosts, now) is None:
        provision_request(world, request, now)


def outline_nodes(world: World, request: QueuedResource, now: float) -> list[Node]:
    """Return the request's future nodes, without numbers and machines."""
    return [
        Node(
            zone=request.zone,
            id=slot.node_id,
            uid=0,
            created=now,
            type=slot.type,
            runtime=slot.runtime,
            spec=complete_spec(world, request.zone, slot.spec, tier=request.tier),
            queued_resource=request.id,
        )
        for slot in request.slots
    ]


def provision_late(world: World, due: AgendaItem) -> None:
    """Provision a request after its deadline."""
    request = current_request(world, due)
    if request is not None:
        provision_request(world, request, due.at)


def provision_request(world: World, request: QueuedResource, now: float) -> None:
    """Create the nodes; the request is ACTIVE when all are READY."""
    outlined = outline_nodes(world, request, now)
    taken = next((one for one in outlined if one.key in world.nodes), None)
    if taken is not None:
        error = RpcStatus(code=6, message=f"Resource '{taken.id}' already exists")
        fail_request(world, request, error, now)
        return
    log_event(world, now, "request.provisioning", request=request.key)
    request = put_request(
        world, replace(request, state="PROVISIONING", pending=0, provisioning_since=now), now
    )
    nodes = [node_with_machines(world, node, now) for node in outlined]
    for index, node in enumerate(nodes):
        if request.multislice:
            first = nodes[0].workers[0].internal_ip
            many = Multislice(coordinator=first, slices=len(nodes), slice=index)
            node = replace(node, multislice=many)
        rule = consume_rule(world, "slow-provisioning", now, **machines.node_facts(node))
        factor = float(rule.params.get("factor", 4.0)) if rule else 1.0
        step_node(
            world, node, now, now + draw_duration(world, "request.ready", factor), "node.ready"
        )
    rule = consume_rule(
        world, "operation-error", now, method="queuedResources.create", **request_facts(request)
    )
    if rule is not None:
        error = lifecycle.rule_status(world, rule, request.zone, now)
        at = now + draw_duration(world, "request.late")
        why = {"uid": request.uid, "code": error.code, "message": error.message}
        schedule_event(world, at, "request.failed", request.key, **why)
        put_request(world, replace(request, pending=world.planned), now)


def node_with_machines(world: World, node: Node, now: float) -> Node:
    """Return a node of a request with its machines."""
    return machines.assign_machines(world, lifecycle.register_node(world, node, now), now)


def check_request_nodes(world: World, due: AgendaItem) -> None:
    """Update a request after changes of its nodes: ACTIVE if all are READY, suspended if one is
    missing.
    """
    request = world.requests.get(due.target)
    if request is None or request.pending or request.state not in ("PROVISIONING", "ACTIVE"):
        return
    nodes = request_nodes(world, request)
    alive = [node for node in nodes if node.state != "DELETING"]
    if len(alive) < len(request.slots):
        begin_suspend(world, request, due.args.get("initiator", "SERVICE"), due.at)
    elif request.state == "PROVISIONING" and all(node.state == "READY" for node in nodes):
        activate_request(world, request, due.at)


def activate_request(world: World, request: QueuedResource, now: float) -> None:
    operation = request.operation
    request = replace(request, state="ACTIVE", operation=None)
    limit = request.spec.get("runDuration", {}).get("maxRunDuration", "")
    if limit and request.ends_at is None:
        request = replace(request, ends_at=now + float(limit[:-1]))
        schedule_event(world, request.ends_at or now, "request.over", request.key, uid=request.uid)
    put_request(world, request, now)
    log_event(world, now, "request.active", request=request.key)
    operations.finish_operation(world, operation, now, request=request)


def finish_run(world: World, due: AgendaItem) -> None:
    """End a request after its maximum run time."""
    request = world.requests.get(due.target)
    if request is not None and request.uid == due.args["uid"] and request.state == "ACTIVE":
        begin_suspend(world, request, "SERVICE", due.at)


def fail_provisioning(world: World, due: AgendaItem) -> None:
    request = world.requests.get(due.target)
    if request is None or request.state != "PROVISIONING":
        return
    if due.args.get("uid", request.uid) != request.uid:
        return
    error = RpcStatus(code=int(due.args["code"]), message=str(due.args["message"]))
    begin_suspend(world, request, "SERVICE", due.at, error=error)


def begin_suspend(
    world: World,
    request: QueuedResource,
    initiator: str,
    now: float,
    *,
    error: RpcStatus | None = None,
) -> None:
    """Remove the nodes; the request stays until its user deletes it."""
    log_event(world, now, "request.suspending", request=request.key, initiator=initiator)
    for node in request_nodes(world, request):
        if node.state != "DELETING":
            lifecycle.begin_delete(world, node, now)
    lasts = draw_duration(world, "request.suspend")
    rule = consume_rule(world, "stuck-suspending", now, **request_facts(request))
    if rule is not None:
        lasts += float(rule.params.get("seconds", 30 * 86400.0))
    operations.finish_operation(world, request.operation, now, error=operations.CANCELLED)
    step_request(
        world,
        request,
        now,
        now + lasts,
        "request.suspended",
        state="SUSPENDING",
        initiator=initiator,
        error=error,
        operation=None,
    )


def finish_suspend(world: World, due: AgendaItem) -> None:
    request = current_request(world, due)
    if request is None:
        return
    now = due.at
    for node in request_nodes(world, request):
        lifecycle.remove_node(world, node, now)
    if request.error is not None:
        fail_request(world, request, request.error, now)
        return
    put_request(world, replace(request, state="SUSPENDED", pending=0), now)
    log_event(world, now, "request.suspended", request=request.key, initiator=request.initiator)


def fail_request(world: World, request: QueuedResource, error: RpcStatus, now: float) -> None:
    """Fail a request that will never be provisioned."""
    log_event(world, now, "request.failed", request=request.key, code=error.code, why=error.message)
    operations.finish_operation(world, request.operation, now, error=error)
    request = replace(request, state="FAILED", pending=0, error=error, operation=None)
    put_request(world, request, now)


def expire_request(world: World, due: AgendaItem) -> None:
    """End a request at its deadline, unless the weather fills it anyway."""
    request = world.requests.get(due.target)
    if request is None or request.uid != due.args["uid"] or request.state not in WAITING:
        return
    if not schedule_late_fill(world, request, due.at):
        fail_request(world, request, EXPIRED, due.at)


def schedule_late_fill(world: World, request: QueuedResource, now: float) -> bool:
    """Whether the weather will fill an expired request."""
    rule = consume_rule(world, "late-fill", now, **request_facts(request))
    if rule is None:
        return False
    at = now + float(rule.params.get("after_s", 60.0))
    step_request(world, request, now, at, "request.late-fill")
    return True


# -- started by users -----------------------------------------------------------------------------


def begin_delete(world: World, request: QueuedResource, now: float, operation: str) -> None:
    """Start to delete a request and its nodes."""
    nodes = request_nodes(world, request)
    for node in nodes:
        if node.state != "DELETING":
            lifecycle.begin_delete(world, node, now)
    log_event(world, now, "request.deleted", request=request.key, state=request.state)
    lasts = draw_duration(world, "node.delete" if nodes else "request.delete")
    step_request(
        world, request, now, now + lasts, "request.gone", state="DELETING", operation=operation
    )


def remove_deleted_request(world: World, due: AgendaItem) -> None:
    request = current_request(world, due)
    if request is None:
        return
    for node in request_nodes(world, request):
        lifecycle.remove_node(world, node, due.at)
    drop_request(world, request, due.at)
    operations.finish_operation(world, request.operation, due.at)
    log_event(world, due.at, "request.gone", request=request.key)


def begin_reset(world: World, request: QueuedResource, now: float, operation: str) -> None:
    """Start to recreate the nodes of an active request."""
    for node in request_nodes(world, request):
        put_node(world, replace(lifecycle.begin_delete(world, node, now), pending=0), now)
    log_event(world, now, "request.reset", request=request.key)
    at = now + draw_duration(world, "request.suspend")
    step_request(
        world, request, now, at, "request.rebuilt", state="PROVISIONING", operation=operation
    )


def rebuild_nodes(world: World, due: AgendaItem) -> None:
    """Create new nodes after those of a reset request are gone."""
    request = current_request(world, due)
    if request is None:
        return
    for node in request_nodes(world, request):
        lifecycle.remove_node(world, node, due.at)
    provision_request(world, request, due.at)


def fail_doomed_operation(world: World, due: AgendaItem) -> None:
    """Fail an accepted delete."""
    error = RpcStatus(code=int(due.args["code"]), message=str(due.args["message"]))
    operations.finish_operation(world, due.target, due.at, error=error)


AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {
    "request.admit": admit_request,
    "request.queued": begin_waiting,
    "request.serve": serve_request,
    "request.late-fill": provision_late,
    "request.look": check_request_nodes,
    "request.over": finish_run,
    "request.failed": fail_provisioning,
    "request.suspended": finish_suspend,
    "request.expire": expire_request,
    "request.gone": remove_deleted_request,
    "request.rebuilt": rebuild_nodes,
    "operation.doomed": fail_doomed_operation,
    "capacity.freed": serve_waiting_requests,
}
