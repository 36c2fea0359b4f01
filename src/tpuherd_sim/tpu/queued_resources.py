"""The queuedResources collection: create, get, list, delete, reset."""

from collections.abc import Mapping

from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Response
from tpuherd_sim.model.records import Operation, QueuedResource, Slot
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World, log_event, schedule_event
from tpuherd_sim.tpu import (
    lifecycle,
    operations,
    queued_lifecycle,
    quota_and_stock,
    rate_limits,
    validate,
)
from tpuherd_sim.tpu.durations import draw_duration
from tpuherd_sim.tpu.errors import (
    JSON_HEADERS,
    already_exists_error,
    invalid_request_error,
    not_found_error,
    precondition_error,
)
from tpuherd_sim.tpu.listing import ListedRecords, list_records
from tpuherd_sim.tpu.machines import new_uid
from tpuherd_sim.tpu.names import ID, check_id, check_zone, resource_name
from tpuherd_sim.tpu.render import operation_json, request_bytes
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.tpu.timestamps import parse_duration, parse_time
from tpuherd_sim.tpu.writes import step_request

TIERS = {"spot": "spot", "guaranteed": "guaranteed", "bestEffort": "best-effort"}
MODEL_TIERS = {"SPOT": "spot", "RESERVATION_BOUND": "guaranteed"}
NODES_MAX = 256
RUN_S_MAX = 7 * 86400.0
ACCEPT, DOOM, REFUSE = "accept", "doom", "refuse"
#: The result of a delete without and with force. Doomed: accepted, but its operation fails.
DELETES: Mapping[str, tuple[str, str]] = {
    "CREATING": (REFUSE, DOOM),
    "ACCEPTED": (ACCEPT, ACCEPT),
    "WAITING_FOR_RESOURCES": (ACCEPT, ACCEPT),
    "PROVISIONING": (REFUSE, DOOM),
    "ACTIVE": (REFUSE, ACCEPT),
    "SUSPENDING": (REFUSE, DOOM),
    "SUSPENDED": (ACCEPT, ACCEPT),
    "FAILED": (ACCEPT, ACCEPT),
    "DELETING": (REFUSE, REFUSE),
}
#: States in which the ids of its nodes are in use.
CLAIMING = frozenset(
    {"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "SUSPENDING"}
)


def find_queued_resource(world: World, call: ApiCall, now: float) -> QueuedResource:
    zone, id = call.path["zone"], call.path["request"]
    request = world.requests.get(f"{zone}/{id}")
    if request is None:
        check_zone(world, zone, now)
        raise not_found_error(resource_name(world, zone, "queuedResources", id))
    return request


def get_queued_resource(world: World, call: ApiCall, now: float) -> Response:
    body = request_bytes(world, find_queued_resource(world, call, now), call.version)
    return Response(body=body, headers=JSON_HEADERS)


def list_queued_resources(world: World, call: ApiCall, now: float) -> Response:
    """List the queued resources of a zone, or of all."""
    page = ListedRecords(
        field="queuedResources",
        records=world.requests,
        render=lambda request: request_bytes(world, request, call.version),
    )
    return list_records(world, call, now, page)


def create_queued_resource(world: World, call: ApiCall, now: float) -> Json:
    """Create a request for nodes. Its operation ends within seconds; the request then waits for
    capacity.
    """
    zone, method = call.path["zone"], "queuedResources.create"
    check_zone(world, zone, now)
    request_id = call.query.get("requestId", "")
    earlier = operations.earlier_operation(world, zone, method, request_id)
    if earlier is not None:
        return operation_json(world, earlier, call.version)
    id = call.query.get("queuedResourceId", "") or f"qr-{world.dice.random_bits() >> 32:08x}"
    if not ID.fullmatch(id):
        text = f'Invalid queued resource id "{id}": it must match ^[A-Za-z0-9_.~+%-]+$'
        raise ApiError(400, "INVALID_ARGUMENT", text)
    tier = requested_tier(call.body)
    slots, multislice = requested_slots(world, call, id, now)
    since, until = validity_interval(call.body.get("queueingPolicy", {}), now)
    check_run_duration(call.body.get("runDuration", {}))
    if f"{zone}/{id}" in world.requests:
        raise already_exists_error(resource_name(world, zone, "queuedResources", id))
    check_names_free(world, zone, slots)
    if tier != "guaranteed":
        spot = tier in ("spot", "best-effort")
        quota_and_stock.check_quota(world, zone, [slot.type for slot in slots], spot=spot)
    rate_limits.check_requests(world, zone)
    operation = operations.begin_operation(
        world, now, method, f"{zone}/{id}", type=slots[0].type, request_id=request_id
    )
    request = QueuedResource(
        zone=zone,
        id=id,
        uid=new_uid(world),
        created=now,
        tier=tier,
        slots=slots,
        multislice=multislice,
        spec={name: value for name, value in call.body.items() if name != "tpu"},
        valid_after=since,
        valid_until=until,
        operation=operation.key,
    )
    log_event(world, now, "request.created", request=request.key, tier=tier, nodes=len(slots))
    step_request(world, request, now, now + draw_duration(world, "request.admit"), "request.admit")
    if until is not None:
        schedule_event(world, max(until, now), "request.expire", request.key, uid=request.uid)
    if consume_rule(
        world, "conflict", now, method=method, **queued_lifecycle.request_facts(request)
    ):
        raise already_exists_error(resource_name(world, zone, "queuedResources", id))
    return operation_json(world, operation, call.version)


def requested_tier(body: Json) -> str:
    """Return the requested tier; the default is on demand."""
    named = [name for name in TIERS if name in body]
    if len(named) > 1:
        raise invalid_request_error(
            f"Invalid value at 'queued_resource' (oneof), oneof field 'tier' is already set. "
            f"Cannot set '{named[1]}'",
            field="queued_resource",
        )
    if named:
        return TIERS[named[0]]
    model = MODEL_TIERS.get(body.get("provisioningModel", ""), "on-demand")
    return "guaranteed" if body.get("reservationName") else model


def requested_slots(
    world: World, call: ApiCall, id: str, now: float
) -> tuple[tuple[Slot, ...], bool]:
    """Return the requested nodes, and whether they form a multislice."""
    zone = call.path["zone"]
    specs = call.body.get("tpu", {}).get("nodeSpec", [])
    if not specs:
        raise ApiError(400, "INVALID_ARGUMENT", "tpu.node_spec must be set.")
    slots: list[Slot] = []
    multislice = False
    for spec in specs:
        check_parent(world, call, spec.get("parent", ""))
        many = spec.get("multisliceParams", spec.get("multiNodeParams"))
        names = [spec["nodeId"]] if "nodeId" in spec else []
        if many is not None:
            names = slice_names(many, id, taken=bool(names))
            multislice = True
        if not names:
            text = "node_spec: either node_id or multislice_params must be set."
            raise ApiError(400, "INVALID_ARGUMENT", text)
        if "node" not in spec:
            raise ApiError(400, "INVALID_ARGUMENT", "node_spec: node must be set.")
        requested = validate.validate_node(world, zone, spec["node"], now)
        for name in names:
            check_id(name, field="node_id", kind="node")
            slots.append(
                Slot(
                    node_id=name,
                    spec=requested.spec,
                    type=requested.type,
                    runtime=requested.runtime,
                )
            )
    if len({slot.node_id for slot in slots}) < len(slots):
        raise ApiError(400, "INVALID_ARGUMENT", "node_spec: every node_id must be another one.")
    return tuple(slots), multislice


def slice_names(many: Json, id: str, *, taken: bool) -> list[str]:
    """Return the names of the nodes of a multislice."""
    if taken:
        raise invalid_request_error(
            "Invalid value at 'queued_resource.tpu.node_spec[0]' (oneof), oneof field "
            "'name_strategy' is already set. Cannot set 'multisliceParams'",
            field="queued_resource.tpu.node_spec[0]",
        )
    count = many.get("nodeCount", 0)
    if not 1 < count <= NODES_MAX:
        text = f"node_count must be greater than 1 and at most {NODES_MAX}."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    prefix = many.get("nodeIdPrefix") or id
    return [f"{prefix}-{number}" for number in range(count)]


def check_parent(world: World, call: ApiCall, parent: str) -> None:
    """Refuse nodes in another place than their request."""
    zone = call.path["zone"]
    projects = (world.settings.project, str(world.settings.project_number))
    if parent not in [f"projects/{project}/locations/{zone}" for project in projects]:
        text = (
            f'node_spec: parent "{parent}" must be the parent of the queued resource, '
            f'"projects/{world.settings.project}/locations/{zone}".'
        )
        raise ApiError(400, "INVALID_ARGUMENT", text)


def check_names_free(world: World, zone: str, slots: tuple[Slot, ...]) -> None:
    """Refuse names that exist or are requested elsewhere."""
    claimed = {
        slot.node_id
        for request in world.requests.values()
        if request.zone == zone and request.state in CLAIMING
        for slot in request.slots
    }
    for slot in slots:
        if slot.node_id in claimed or f"{zone}/{slot.node_id}" in world.nodes:
            raise already_exists_error(resource_name(world, zone, "nodes", slot.node_id))


def validity_interval(policy: Json, now: float) -> tuple[float | None, float | None]:
    """Return when the nodes are wanted, from and until. Wall time."""
    if len(policy) > 1:
        raise invalid_request_error(
            "Invalid value at 'queued_resource.queueing_policy' (oneof), oneof field "
            "'start_timing_constraints' is already set.",
            field="queued_resource.queueing_policy",
        )
    interval = policy.get("validInterval", {})
    since = policy_time(policy, "validAfterTime", "validAfterDuration", now)
    until = policy_time(policy, "validUntilTime", "validUntilDuration", now)
    if interval:
        since, until = (
            parse_time(interval.get("startTime", "")),
            parse_time(interval.get("endTime", "")),
        )
        if since is None or until is None or until <= since:
            raise ApiError(
                400, "INVALID_ARGUMENT", "valid_interval: start_time must be before end_time."
            )
    if until is not None and until <= now:
        text = "queueing_policy: the time until which it is valid must be in the future."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    return since, until


def check_run_duration(run: Json) -> None:
    """Refuse a maximum run time above a week."""
    length = run.get("maxRunDuration")
    if length is not None and not 0.0 < (parse_duration(length) or 0.0) <= RUN_S_MAX:
        text = "run_duration: max_run_duration must be positive and at most 7 days."
        raise ApiError(400, "INVALID_ARGUMENT", text)


def policy_time(policy: Json, at: str, after: str, now: float) -> float | None:
    """Return a time given as such or as a duration from now."""
    if at in policy:
        return parse_time(policy[at])
    length = parse_duration(policy.get(after, ""))
    return None if length is None else now + length


def begin_request_operation(
    world: World, request: QueuedResource, now: float, method: str, request_id: str = ""
) -> Operation:
    return operations.begin_operation(
        world, now, method, request.key, type=request.slots[0].type, request_id=request_id
    )


def delete_queued_resource(world: World, call: ApiCall, now: float) -> Json:
    """Delete a request, with its nodes if `force` is set; the table says when that is allowed."""
    zone, method = call.path["zone"], "queuedResources.delete"
    request_id = call.query.get("requestId", "")
    earlier = operations.earlier_operation(world, zone, method, request_id)
    if earlier is not None:
        return operation_json(world, earlier, call.version)
    request = find_queued_resource(world, call, now)
    force = call.query.get("force", "").lower() in ("true", "1")
    outcome = DELETES[request.state][force]
    if outcome == REFUSE:
        name = resource_name(world, zone, "queuedResources", request.id)
        raise precondition_error(
            f"Queued resource '{name}' is in state {request.state} and cannot be deleted"
            + ("." if force else "; delete its nodes first, or set force.")
        )
    operation = begin_request_operation(world, request, now, method, request_id)
    code, message = 9, f"delete failed: queued resource is in state {request.state}"
    rule = consume_rule(
        world, "operation-error", now, method=method, **queued_lifecycle.request_facts(request)
    )
    if rule is not None:
        error = lifecycle.rule_status(world, rule, zone, now)
        outcome, code, message = DOOM, error.code, error.message
    elif request.state in queued_lifecycle.WAITING and queued_lifecycle.schedule_late_fill(
        world, request, now
    ):
        outcome = DOOM
    if outcome == DOOM:
        at = now + draw_duration(world, "request.doomed")
        schedule_event(world, at, "operation.doomed", operation.key, code=code, message=message)
    else:
        queued_lifecycle.begin_delete(world, request, now, operation.key)
    return operation_json(world, operation, call.version)


def reset_queued_resource(world: World, call: ApiCall, now: float) -> Json:
    """Recreate the nodes of an active request."""
    request = find_queued_resource(world, call, now)
    if request.state != "ACTIVE":
        name = resource_name(world, request.zone, "queuedResources", request.id)
        raise precondition_error(
            f"Queued resource '{name}' is in state {request.state} and cannot be reset; "
            "it must be ACTIVE."
        )
    operation = begin_request_operation(world, request, now, "queuedResources.reset")
    queued_lifecycle.begin_reset(world, request, now, operation.key)
    return operation_json(world, operation, call.version)


PLACE = "/projects/{project}/locations/{zone}/queuedResources"
ROUTES = tuple(
    route
    for version in ("v2", "v2alpha1")
    for route in (
        Route("GET", f"/{version}{PLACE}", list_queued_resources),
        Route("POST", f"/{version}{PLACE}", create_queued_resource),
        Route("GET", f"/{version}{PLACE}/{{request}}", get_queued_resource),
        Route("DELETE", f"/{version}{PLACE}/{{request}}", delete_queued_resource),
        Route("POST", f"/{version}{PLACE}/{{request}}:reset", reset_queued_resource),
    )
)
