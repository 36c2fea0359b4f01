"""The nodes collection: create, get, list, patch, start, stop, delete, guest attributes."""

from typing import Any

from tpuherd.catalogue import accelerators
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Response
from tpuherd_sim.model.records import DEAD, Node, Operation, Worker
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.tpu import lifecycle, operations, quota_and_stock, rate_limits, validate
from tpuherd_sim.tpu.defaults import complete_spec
from tpuherd_sim.tpu.durations import draw_duration
from tpuherd_sim.tpu.errors import (
    JSON_HEADERS,
    already_exists_error,
    bad_request_error,
    not_found_error,
    precondition_error,
    wrong_state_error,
)
from tpuherd_sim.tpu.listing import ListedRecords, list_records
from tpuherd_sim.tpu.names import check_id, check_zone, resource_name
from tpuherd_sim.tpu.render import node_bytes, operation_json
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.tpu.writes import step_node

#: The states in which each operation may start. Deleting twice is refused.
ALLOWED = {
    "update": frozenset({"READY", "STOPPED"}),
    "stop": frozenset({"READY"}),
    "start": frozenset({"STOPPED"}),
    "delete": frozenset(
        {
            "CREATING", "READY", "RESTARTING", "REIMAGING", "REPAIRING", "STOPPED", "STOPPING",
            "STARTING", "PREEMPTED", "TERMINATED", "HIDDEN", "UNKNOWN",
        }
    ),
}  # fmt: skip
#: What Google has answered to a create by v1 since 2025.
TPU_NODES_DENIED = (
    "Your request to provision TPU Node has been denied. Please migrate to TPU VM Architecture or "
    "contact Cloud TPU team to gain TPU Node access. "
    "https://cloud.google.com/tpu/docs/system-architecture-tpu-vm#from-tpu-node-to-tpu-vm"
)


def find_node(world: World, call: ApiCall, now: float) -> Node:
    zone, id = call.path["zone"], call.path["node"]
    node = world.nodes.get(f"{zone}/{id}")
    if node is None:
        check_zone(world, zone, now)
        raise not_found_error(resource_name(world, zone, "nodes", id))
    return node


def get_node(world: World, call: ApiCall, now: float) -> Response:
    node = find_node(world, call, now)
    return Response(body=node_bytes(world, node, call.version), headers=JSON_HEADERS)


def list_nodes(world: World, call: ApiCall, now: float) -> Response:
    """List the nodes of a zone, or of all; filters are not supported."""
    page = ListedRecords(
        field="nodes",
        records=world.nodes,
        render=lambda node: node_bytes(world, node, call.version),
    )
    return list_records(world, call, now, page)


def create_node(world: World, call: ApiCall, now: float) -> Json:
    """Create a node; the operation ends when it is READY or can't be created. v1 denies it."""
    zone, id = call.path["zone"], call.query.get("nodeId", "")
    check_zone(world, zone, now)
    if call.version == "v1":
        raise precondition_error(TPU_NODES_DENIED)
    request_id = call.query.get("requestId", "")
    earlier = operations.earlier_operation(world, zone, "nodes.create", request_id)
    if earlier is not None:
        return operation_json(world, earlier, call.version)
    check_id(id, field="node_id", kind="node")
    requested = validate.validate_node(world, zone, call.body, now)
    key = f"{zone}/{id}"
    if key in world.nodes:
        raise already_exists_error(resource_name(world, zone, "nodes", id))
    spec = complete_spec(world, zone, requested.spec)
    scheduling = spec["schedulingConfig"]
    spot = bool(scheduling.get("spot") or scheduling.get("preemptible"))
    if not scheduling.get("reserved") and not scheduling.get("reservationName"):
        quota_and_stock.check_quota(world, zone, [requested.type], spot=spot)
    rate_limits.check_rate(world, now)
    operation = operations.begin_operation(
        world, now, "nodes.create", key, type=requested.type, request_id=request_id
    )
    node = Node(
        zone=zone,
        id=id,
        uid=0,
        created=now,
        type=requested.type,
        runtime=requested.runtime,
        spec=spec,
        operation=operation.key,
    )
    node = lifecycle.register_node(world, node, now)
    step_node(world, node, now, now + draw_duration(world, "node.place"), "node.place")
    if consume_rule(
        world, "conflict", now, zone=zone, type=requested.type, node=id, method="nodes.create"
    ):
        raise already_exists_error(resource_name(world, zone, "nodes", id))
    return operation_json(world, operation, call.version)


def delete_node(world: World, call: ApiCall, now: float) -> Json:
    """Delete a node; that of a queued resource takes the queued resource with it."""
    request_id = call.query.get("requestId", "")
    zone = call.path["zone"]
    earlier = operations.earlier_operation(world, zone, "nodes.delete", request_id)
    if earlier is not None:
        return operation_json(world, earlier, call.version)
    node = find_permitted_node(world, call, now, "delete")
    operation = begin_node_operation(world, node, now, "nodes.delete", request_id)
    if not fail_by_weather(world, node, operation, now, "nodes.delete"):
        lifecycle.begin_delete(world, node, now, operation=operation.key)
        lifecycle.notify_queued_resource(world, node, now, "USER")
    return operation_json(world, operation, call.version)


def stop_node(world: World, call: ApiCall, now: float) -> Json:
    """Stop a node, which must be a direct on-demand node with a single host."""
    return stop_or_start_node(world, call, now, "stop")


def start_node(world: World, call: ApiCall, now: float) -> Json:
    """Start a stopped node if a TPU is available."""
    return stop_or_start_node(world, call, now, "start")


def stop_or_start_node(world: World, call: ApiCall, now: float, verb: str) -> Json:
    node = find_node(world, call, now)
    if accelerators()[node.type].hosts > 1:
        raise bad_request_error(
            world, now, f"{verb} is not supported for TPU pods: only for a single host"
        )
    if node.queued_resource:
        raise bad_request_error(
            world, now, f"{verb} is not supported for nodes of a queued resource"
        )
    if node.is_spot and node.state in DEAD:
        raise bad_request_error(
            world, now, f"{verb} is not supported: the preempted node no longer exists"
        )
    if node.is_spot:
        raise bad_request_error(
            world, now, f"{verb} is not supported for preemptible or spot nodes"
        )
    node = find_permitted_node(world, call, now, verb)
    operation = begin_node_operation(world, node, now, f"nodes.{verb}")
    if not fail_by_weather(world, node, operation, now, f"nodes.{verb}"):
        doing = lifecycle.begin_stop if verb == "stop" else lifecycle.begin_start
        doing(world, node, now, operation.key)
    return operation_json(world, operation, call.version)


def patch_node(world: World, call: ApiCall, now: float) -> Json:
    """Change labels, metadata, tags, description, disks or external addresses after a moment."""
    zone, mask = find_node(world, call, now).zone, call.query.get("updateMask", "")
    fields = validate.validate_patch(call.version, zone, mask, call.body)
    node = find_permitted_node(world, call, now, "update")
    operation = begin_node_operation(world, node, now, "nodes.patch")
    if not fail_by_weather(world, node, operation, now, "nodes.patch"):
        lifecycle.schedule_update(world, node, now, operation, merge_patch(node, fields))
    return operation_json(world, operation, call.version)


def merge_patch(node: Node, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the whole fields of the node that a patch changes."""
    wanted = fields.pop(validate.EXTERNAL_IPS, None)
    if wanted is None:
        return fields
    cards = [dict(one) for one in node.spec.get("networkConfigs", ())]
    config = dict(node.spec["networkConfig"])
    for card in (config, *cards[:1]):
        card.pop("enableExternalIps", None)
        if wanted:
            card["enableExternalIps"] = True
    fields["networkConfig"] = config
    if cards:
        fields["networkConfigs"] = cards
    return fields


def find_permitted_node(world: World, call: ApiCall, now: float, verb: str) -> Node:
    """Return the node of a path if its state allows the operation."""
    node = find_node(world, call, now)
    if node.state not in ALLOWED[verb]:
        raise wrong_state_error(world, now, verb, node.state)
    return node


def begin_node_operation(
    world: World, node: Node, now: float, method: str, request_id: str = ""
) -> Operation:
    return operations.begin_operation(
        world, now, method, node.key, type=node.type, request_id=request_id
    )


def fail_by_weather(
    world: World, node: Node, operation: Operation, now: float, method: str
) -> bool:
    """Whether the weather makes an operation fail without effect."""
    error = lifecycle.weather_failure(world, node, method, now)
    if error is None:
        return False
    at = now + draw_duration(world, "node.fail")
    schedule_event(
        world, at, "operation.doomed", operation.key, code=error.code, message=error.message
    )
    return True


def get_guest_attributes(world: World, call: ApiCall, now: float) -> Json:
    """Get what the hosts published, one entry per worker; `workerIds` [""] means all of them."""
    node = find_node(world, call, now)
    asked = [one for one in call.body.get("workerIds", ()) if one]
    chosen = node.workers
    if asked:
        chosen = tuple(worker_by_index(node, one) for one in asked)
    query = call.body.get("queryPath", "")
    entries = [guest_attributes_json(worker, query) for worker in chosen]
    return {"guestAttributes": entries} if entries else {}


def worker_by_index(node: Node, index: str) -> Worker:
    """Return a worker by the text of its number."""
    if not index.isdecimal() or int(index) >= len(node.workers):
        text = f'Invalid worker id "{index}": the node has {len(node.workers)} workers.'
        raise ApiError(400, "INVALID_ARGUMENT", text)
    return node.workers[int(index)]


def guest_attributes_json(worker: Worker, query: str) -> Json:
    """Return a worker's guest attributes under a path such as `hostkeys/` or `hostkeys/ssh-rsa`."""
    namespace, _, name = query.partition("/")
    items = [
        {"namespace": one.namespace, "key": one.name, "value": one.value}
        for one in worker.guest
        if namespace in ("", one.namespace) and name in ("", one.name)
    ]
    return {"queryPath": query, "queryValue": {"items": items} if items else {}}


def reimage_node(world: World, call: ApiCall, now: float) -> Json:
    """Restart a node with another runtime on the same machines; v1 only."""
    node = find_permitted_node(world, call, now, "stop")
    version = call.body.get("tensorflowVersion", "")
    if not validate.is_known_runtime(version):
        raise bad_request_error(
            world, now, f'The runtime version "{version}" could not be found in {node.zone}.'
        )
    operation = begin_node_operation(world, node, now, "nodes.reimage")
    lifecycle.begin_reimage(world, node, now, version, operation.key)
    return operation_json(world, operation, call.version)


PLACE = "/projects/{project}/locations/{zone}/nodes"
ROUTES = (
    *(
        route
        for version in ("v1", "v2", "v2alpha1")
        for route in (
            Route("GET", f"/{version}{PLACE}", list_nodes),
            Route("POST", f"/{version}{PLACE}", create_node),
            Route("GET", f"/{version}{PLACE}/{{node}}", get_node),
            Route("DELETE", f"/{version}{PLACE}/{{node}}", delete_node),
            Route("POST", f"/{version}{PLACE}/{{node}}:start", start_node),
            Route("POST", f"/{version}{PLACE}/{{node}}:stop", stop_node),
        )
    ),
    *(
        route
        for version in ("v2", "v2alpha1")
        for route in (
            Route("PATCH", f"/{version}{PLACE}/{{node}}", patch_node),
            Route("POST", f"/{version}{PLACE}/{{node}}:getGuestAttributes", get_guest_attributes),
        )
    ),
    Route("POST", f"/v1{PLACE}/{{node}}:reimage", reimage_node),
)
