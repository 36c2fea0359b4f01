"""The nodes collection: create, get, list, patch, start, stop, delete, guest attributes."""

from typing import Any

from tpuherd.catalogue import accelerators, zones
from tpuherd_sim.model.http_types import Call, Json, Refused, Response
from tpuherd_sim.model.records import DEAD, Node, Operation, Worker
from tpuherd_sim.model.strike_rules import strike
from tpuherd_sim.model.world import World, plan
from tpuherd_sim.tpu import lifecycle, operations, quota_and_stock, rate_limits, validate
from tpuherd_sim.tpu.defaults import complete
from tpuherd_sim.tpu.durations import throw
from tpuherd_sim.tpu.errors import JSON_HEADERS, bad, exists, not_found, not_now
from tpuherd_sim.tpu.listing import Page, as_list
from tpuherd_sim.tpu.names import check_id, check_zone, resource
from tpuherd_sim.tpu.render import node_bytes, operation_json
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.tpu.writes import step

#: In which states what may be begun. Who deletes twice is told so.
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


def find(world: World, call: Call, now: float) -> Node:
    """The node of a path."""
    zone, id = call.path["zone"], call.path["node"]
    node = world.nodes.get(f"{zone}/{id}")
    if node is None:
        check_zone(world, zone, now)
        raise not_found(resource(world, zone, "nodes", id))
    return node


def get(world: World, call: Call, now: float) -> Response:
    """One node."""
    node = find(world, call, now)
    return Response(body=node_bytes(world, node, call.version), headers=JSON_HEADERS)


def list_all(world: World, call: Call, now: float) -> Response:
    """The nodes of a zone, or of all. There is no filter: clients do that."""
    page = Page(
        field="nodes",
        records=world.nodes,
        render=lambda node: node_bytes(world, node, call.version),
    )
    return as_list(world, call, now, page)


def create(world: World, call: Call, now: float) -> Json:
    """A node of one's own: its operation ends when it is READY, or when it can't be had."""
    zone, id = call.path["zone"], call.query.get("nodeId", "")
    check_zone(world, zone, now)
    request_id = call.query.get("requestId", "")
    earlier = operations.promised(world, zone, "nodes.create", request_id)
    if earlier is not None:
        return operation_json(world, earlier, call.version)
    check_id(id, field="node_id", kind="node")
    if call.version == "v1":
        check_old_type(zone, call.body.get("acceleratorType", ""))
    wish = validate.node(world, zone, as_v2(call), now)
    key = f"{zone}/{id}"
    if key in world.nodes:
        raise exists(resource(world, zone, "nodes", id))
    spec = complete(world, zone, wish.spec)
    scheduling = spec["schedulingConfig"]
    spot = bool(scheduling.get("spot") or scheduling.get("preemptible"))
    if not scheduling.get("reserved") and not scheduling.get("reservationName"):
        quota_and_stock.check_quota(world, zone, [wish.type], spot=spot)
    rate_limits.check_rate(world, now)
    operation = operations.begin(
        world, now, "nodes.create", key, type=wish.type, request_id=request_id
    )
    node = Node(
        zone=zone,
        id=id,
        uid=0,
        created=now,
        type=wish.type,
        runtime=wish.runtime,
        spec=spec,
        operation=operation.key,
    )
    node = lifecycle.born(world, node, now)
    step(world, node, now, now + throw(world, "node.place"), "node.place")
    if strike(world, "conflict", now, zone=zone, type=wish.type, node=id, method="nodes.create"):
        raise exists(resource(world, zone, "nodes", id))
    return operation_json(world, operation, call.version)


def check_old_type(zone: str, type: str) -> None:
    """v1 says in words of its own that there is no such type."""
    here = sorted(zones()[zone].types)
    if type not in here:
        text = (
            f'CloudTpu received an invalid AcceleratorType, "{type}" for zone "{zone}". '
            f'Valid values are "{", ".join(here)}, ".'
        )
        raise Refused(400, "INVALID_ARGUMENT", text)


def as_v2(call: Call) -> Json:
    """The body in the names of v2, also where it came in those of v1."""
    if call.version != "v1":
        return call.body
    body = dict(call.body)
    body["runtimeVersion"] = body.pop("tensorflowVersion", "")
    body["networkConfig"] = {"network": body.pop("network", ""), "enableExternalIps": True}
    return body


def delete(world: World, call: Call, now: float) -> Json:
    """A node goes; one of a queued resource takes that with it."""
    request_id = call.query.get("requestId", "")
    zone = call.path["zone"]
    earlier = operations.promised(world, zone, "nodes.delete", request_id)
    if earlier is not None:
        return operation_json(world, earlier, call.version)
    node = permitted(world, call, now, "delete")
    operation = begin(world, node, now, "nodes.delete", request_id)
    if not spoilt(world, node, operation, now, "nodes.delete"):
        lifecycle.delete(world, node, now, operation=operation.key)
        lifecycle.lost(world, node, now, "USER")
    return operation_json(world, operation, call.version)


def stop(world: World, call: Call, now: float) -> Json:
    """Only one host of its own, on demand, can be stopped."""
    return pause(world, call, now, "stop")


def start(world: World, call: Call, now: float) -> Json:
    """What was stopped can be started again, if there is a TPU for it."""
    return pause(world, call, now, "start")


def pause(world: World, call: Call, now: float, verb: str) -> Json:
    """Begin to stop or start."""
    node = find(world, call, now)
    if accelerators()[node.type].hosts > 1:
        raise bad(world, now, f"{verb} is not supported for TPU pods: only for a single host")
    if node.queued_resource:
        raise bad(world, now, f"{verb} is not supported for nodes of a queued resource")
    if node.spot and node.state in DEAD:
        raise bad(world, now, f"{verb} is not supported: the preempted node no longer exists")
    if node.spot:
        raise bad(world, now, f"{verb} is not supported for preemptible or spot nodes")
    node = permitted(world, call, now, verb)
    operation = begin(world, node, now, f"nodes.{verb}")
    if not spoilt(world, node, operation, now, f"nodes.{verb}"):
        doing = lifecycle.stop if verb == "stop" else lifecycle.start
        doing(world, node, now, operation.key)
    return operation_json(world, operation, call.version)


def patch(world: World, call: Call, now: float) -> Json:
    """Change labels, metadata, tags, description, disks or external addresses, in a moment."""
    find(world, call, now)
    fields = validate.patch(call.version, call.query.get("updateMask", ""), call.body)
    node = permitted(world, call, now, "update")
    operation = begin(world, node, now, "nodes.patch")
    if not spoilt(world, node, operation, now, "nodes.patch"):
        lifecycle.update(world, node, now, operation, merged(node, fields))
    return operation_json(world, operation, call.version)


def merged(node: Node, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a patch as whole fields of the node."""
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


def permitted(world: World, call: Call, now: float, verb: str) -> Node:
    """The node of a path, if its state allows that."""
    node = find(world, call, now)
    if node.state not in ALLOWED[verb]:
        raise not_now(world, now, verb, node.state)
    return node


def begin(world: World, node: Node, now: float, method: str, request_id: str = "") -> Operation:
    """An operation on a node."""
    return operations.begin(
        world,
        now,
        method,
        node.key,
        type=node.type,
        request_id=request_id,
    )


def spoilt(world: World, node: Node, operation: Operation, now: float, method: str) -> bool:
    """Whether the weather lets an operation fail without any effect."""
    error = lifecycle.failure(world, node, method, now)
    if error is None:
        return False
    at = now + throw(world, "node.fail")
    plan(world, at, "operation.doomed", operation.key, code=error.code, message=error.message)
    return True


def guest_attributes(world: World, call: Call, now: float) -> Json:
    """What the hosts said of themselves, one entry a worker; `workerIds` [""] means all of them."""
    node = find(world, call, now)
    asked = [one for one in call.body.get("workerIds", ()) if one]
    chosen = node.workers
    if asked:
        chosen = tuple(worker_of(node, one) for one in asked)
    query = call.body.get("queryPath", "")
    entries = [attributes_of(worker, query) for worker in chosen]
    return {"guestAttributes": entries} if entries else {}


def worker_of(node: Node, index: str) -> Worker:
    """A worker by the text of its number."""
    if not index.isdecimal() or int(index) >= len(node.workers):
        text = f'Invalid worker id "{index}": the node has {len(node.workers)} workers.'
        raise Refused(400, "INVALID_ARGUMENT", text)
    return node.workers[int(index)]


def attributes_of(worker: Worker, query: str) -> Json:
    """The guest attributes of a worker under a path such as `hostkeys/` or `hostkeys/ssh-rsa`."""
    namespace, _, name = query.partition("/")
    items = [
        {"namespace": one.namespace, "key": one.name, "value": one.value}
        for one in worker.guest
        if namespace in ("", one.namespace) and name in ("", one.name)
    ]
    return {"queryPath": query, "queryValue": {"items": items} if items else {}}


def reimage(world: World, call: Call, now: float) -> Json:
    """v1 only: another runtime on the same machines, which start anew."""
    node = permitted(world, call, now, "stop")
    version = call.body.get("tensorflowVersion", "")
    if not validate.known_runtime(version):
        raise bad(world, now, f'The runtime version "{version}" could not be found in {node.zone}.')
    operation = begin(world, node, now, "nodes.reimage")
    lifecycle.reimage(world, node, now, version, operation.key)
    return operation_json(world, operation, call.version)


PLACE = "/projects/{project}/locations/{zone}/nodes"
ROUTES = (
    *(
        route
        for version in ("v1", "v2", "v2alpha1")
        for route in (
            Route("GET", f"/{version}{PLACE}", list_all),
            Route("POST", f"/{version}{PLACE}", create),
            Route("GET", f"/{version}{PLACE}/{{node}}", get),
            Route("DELETE", f"/{version}{PLACE}/{{node}}", delete),
            Route("POST", f"/{version}{PLACE}/{{node}}:start", start),
            Route("POST", f"/{version}{PLACE}/{{node}}:stop", stop),
        )
    ),
    *(
        route
        for version in ("v2", "v2alpha1")
        for route in (
            Route("PATCH", f"/{version}{PLACE}/{{node}}", patch),
            Route("POST", f"/{version}{PLACE}/{{node}}:getGuestAttributes", guest_attributes),
        )
    ),
    Route("POST", f"/v1{PLACE}/{{node}}:reimage", reimage),
)
