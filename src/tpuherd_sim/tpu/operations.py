"""Long-running operations: started by a request, ended by the lifecycle, kept for a day."""

from collections.abc import Callable
from dataclasses import replace

from tpuherd_sim.model.http_types import ApiCall, Json, Response
from tpuherd_sim.model.records import Node, Operation, QueuedResource, RpcStatus
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World, scale_duration, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu.durations import DAY_S
from tpuherd_sim.tpu.errors import not_found_error, precondition_error
from tpuherd_sim.tpu.listing import ListedRecords, list_records
from tpuherd_sim.tpu.names import check_zone, resource_name
from tpuherd_sim.tpu.render import json_bytes, operation_json
from tpuherd_sim.tpu.router import Route

VERB_OF_METHOD = {"patch": "update"}
NO_REQUEST_ID = ("", "00000000-0000-0000-0000-000000000000")
CANCELLED = RpcStatus(code=1, message="The operation was cancelled.")


def begin_operation(
    world: World, now: float, method: str, key: str, *, type: str = "", request_id: str = ""
) -> Operation:
    """Start an operation such as nodes.create on the resource zone/id."""
    collection, _, verb = method.partition(".")
    zone, _, target = key.partition("/")
    facts = {"zone": zone, "method": method, target_fact_name(collection): target}
    if type:
        facts["type"] = type
    slow = consume_rule(world, "slow-operation", now, **facts)
    bits = world.dice.random_bits()
    high, low = world.dice.random_bits() >> 32, bits & 0xFFFFFFFF
    operation = Operation(
        zone=zone,
        id=f"operation-{int(now * 1000)}-{bits >> 12:013x}-{high:08x}-{low:08x}",
        collection=collection,
        target=target,
        verb=VERB_OF_METHOD.get(verb, verb),
        created=now,
        endless=consume_rule(world, "endless-operation", now, **facts) is not None,
        factor=float(slow.params.get("factor", 10.0)) if slow else 1.0,
        request_id="" if request_id in NO_REQUEST_ID else f"{zone}/{method}/{request_id}",
    )
    world.operations[operation.key] = operation
    if operation.request_id:
        world.books.promises[operation.request_id] = operation.key
    return operation


def target_fact_name(collection: str) -> str:
    """Return the fact by which weather rules match the operation's target."""
    return "node" if collection == "nodes" else "request"


def earlier_operation(world: World, zone: str, method: str, request_id: str) -> Operation | None:
    """Return the operation that an earlier request with the same id started."""
    if request_id in NO_REQUEST_ID:
        return None
    key = world.books.promises.get(f"{zone}/{method}/{request_id}", "")
    return world.operations.get(key)


def finish_operation(
    world: World,
    key: str | None,
    now: float,
    *,
    error: RpcStatus | None = None,
    node: Node | None = None,
    request: QueuedResource | None = None,
) -> None:
    """Record that the effect of an operation is complete or failed; the weather may delay the
    report.
    """
    operation = world.operations.get(key or "")
    if operation is None or operation.settled:
        return
    if node is not None:
        node = replace(node, operation=None)
    operation = replace(operation, settled=True, error=error, node=node, request=request)
    world.operations[operation.key] = operation
    if operation.endless:
        return
    late = operation.created + (now - operation.created) * operation.factor
    if operation.factor > 1.0 and late > now:
        schedule_event(world, late, "operation.end", operation.key)
    else:
        close_operation(world, operation, now)


def close_operation(world: World, operation: Operation, now: float) -> None:
    """Report the operation as done."""
    world.operations[operation.key] = replace(operation, ended=now)
    schedule_event(world, now + scale_duration(world, DAY_S), "operation.forget", operation.key)


def end_slow_operation(world: World, due: AgendaItem) -> None:
    """Finish a delayed operation."""
    operation = world.operations.get(due.target)
    if operation is not None and operation.ended is None:
        close_operation(world, operation, due.at)


def forget_operation(world: World, due: AgendaItem) -> None:
    """Drop an operation that finished a day ago."""
    operation = world.operations.pop(due.target, None)
    if operation is not None and operation.request_id:
        world.books.promises.pop(operation.request_id, None)


# -- requests -------------------------------------------------------------------------------------


def find_operation(world: World, call: ApiCall, now: float) -> Operation:
    zone, id = call.path["zone"], call.path["operation"]
    check_zone(world, zone, now)
    operation = world.operations.get(f"{zone}/{id}")
    if operation is None:
        raise not_found_error(resource_name(world, zone, "operations", id))
    return operation


def get_operation(world: World, call: ApiCall, now: float) -> Json:
    return operation_json(world, find_operation(world, call, now), call.version)


def list_operations(world: World, call: ApiCall, now: float) -> Response:
    """List the operations of a zone, or of all."""
    return list_records(
        world,
        call,
        now,
        ListedRecords(
            field="operations",
            records=world.operations,
            render=lambda operation: json_bytes(operation_json(world, operation, call.version)),
        ),
    )


def delete_operation(world: World, call: ApiCall, now: float) -> Json:
    operation = find_operation(world, call, now)
    if operation.ended is None:
        name = resource_name(world, operation.zone, "operations", operation.id)
        raise precondition_error(f"Operation '{name}' is not done yet and cannot be deleted.")
    forget_operation(world, AgendaItem(now, 0, "operation.forget", operation.key))
    return {}


def cancel_operation(world: World, call: ApiCall, now: float) -> Json:
    """Cancel an operation; a node that is being created is removed."""
    operation = find_operation(world, call, now)
    if operation.ended is None and not operation.cancelled:
        world.operations[operation.key] = replace(operation, cancelled=True)
        if (operation.collection, operation.verb) == ("nodes", "create"):
            schedule_event(world, now, "node.cancel", operation.key)
    return {}


PLACE = "/projects/{project}/locations/{zone}/operations"
ROUTES = tuple(
    route
    for version in ("v1", "v2", "v2alpha1")
    for route in (
        Route(method="GET", template=f"/{version}{PLACE}", answer=list_operations),
        Route(method="GET", template=f"/{version}{PLACE}/{{operation}}", answer=get_operation),
        Route(
            method="DELETE", template=f"/{version}{PLACE}/{{operation}}", answer=delete_operation
        ),
        Route(
            method="POST",
            template=f"/{version}{PLACE}/{{operation}}:cancel",
            answer=cancel_operation,
        ),
    )
)
AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {
    "operation.end": end_slow_operation,
    "operation.forget": forget_operation,
}
