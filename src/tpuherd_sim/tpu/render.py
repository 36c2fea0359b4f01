"""Renders records as JSON for each version of the API."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tpuherd.catalogue import accelerators
from tpuherd_sim.model.http_types import Json, Response
from tpuherd_sim.model.records import (
    Node,
    Operation,
    QueuedResource,
    Reservation,
    RpcStatus,
    UpcomingMaintenance,
    Worker,
)
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.errors import JSON_HEADERS
from tpuherd_sim.tpu.names import resource_name
from tpuherd_sim.tpu.request_schemas import known_fields
from tpuherd_sim.tpu.timestamps import format_timestamp

PORT = 8470
#: Fields in v2's documents that its client library lacks: it ignores them in a node, and fails on
#: them in an operation.
NOT_IN_PROTO = frozenset({"bootDiskConfig", "upcomingMaintenance", "protectionTier"})
API_VERSION = {"v2": "V2", "v2alpha1": "V2_ALPHA1", "v1": "V2_ALPHA1"}
#: The states of a queued resource with a (mostly empty) message of their own.
STATE_WORDS = {
    "CREATING": "creatingData",
    "ACCEPTED": "acceptedData",
    "PROVISIONING": "provisioningData",
    "FAILED": "failedData",
    "DELETING": "deletingData",
    "ACTIVE": "activeData",
    "SUSPENDING": "suspendingData",
    "SUSPENDED": "suspendedData",
}


def json_response(content: Json) -> Response:
    return Response(body=json_bytes(content), headers=JSON_HEADERS)


def json_bytes(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def node_bytes(world: World, node: Node, version: str) -> bytes:
    return cached_bytes(world, version, node, partial(node_json, world, node, version))


def request_bytes(world: World, request: QueuedResource, version: str) -> bytes:
    content = partial(request_json, world, request, version)
    return cached_bytes(world, f"Q{version}", request, content)


def cached_bytes(
    world: World, kind: str, record: Node | QueuedResource, content: Callable[[], Json]
) -> bytes:
    """Return a record as JSON, rendered once."""
    known = world.rendered.get((kind, record.key))
    if known is not None and known[0] is record:
        return known[1]
    body = json_bytes(content())
    world.rendered[kind, record.key] = (record, body)
    return body


def node_json(world: World, node: Node, version: str) -> Json:
    if version == "v1":
        return old_node_json(world, node)
    accelerator = accelerators()[node.type]
    content: Json = {
        "name": resource_name(world, node.zone, "nodes", node.id),
        "bootDiskConfig": {},
        "shieldedInstanceConfig": {},
        "schedulingConfig": {},
        **node.spec,
        "acceleratorType": node.type,
        "acceleratorConfig": {"type": accelerator.enum, "topology": accelerator.topology},
        "runtimeVersion": node.runtime,
        "apiVersion": API_VERSION[version],
        "createTime": format_timestamp(node.created),
        "id": str(node.uid),
        "state": node.state,
    }
    optional: Json = {
        "health": node.health,
        "healthDescription": node.health_description,
        "cidrBlock": node.cidr,
        "networkEndpoints": [
            one for worker in node.workers for one in network_endpoints(node, worker)
        ],
        "multisliceNode": node.multislice is not None,
        "symptoms": [
            {
                "createTime": format_timestamp(one.at),
                "symptomType": one.type,
                "details": one.details,
                "workerId": str(one.worker),
            }
            for one in node.symptoms
        ],
        "upcomingMaintenance": upcoming_json(node.upcoming) if node.upcoming else None,
        "queuedResource": node.queued_resource
        and resource_name(world, node.zone, "queuedResources", node.queued_resource),
    }
    content.update((name, value) for name, value in optional.items() if value)
    return known_fields(version, "Node", content)


def network_endpoints(node: Node, worker: Worker) -> list[Json]:
    """Return a worker's networkEndpoints: one for each network card, its own first."""
    first: Json = {"ipAddress": worker.internal_ip, "port": PORT}
    if worker.external_ip:
        first["accessConfig"] = {"externalIp": worker.external_ip}
    _, _, rest = worker.internal_ip.split(".", 2)
    cards = len(node.spec.get("networkConfigs", ())) or 1
    return [
        first,
        *({"ipAddress": f"10.{191 + card}.{rest}", "port": PORT} for card in range(1, cards)),
    ]


def old_node_json(world: World, node: Node) -> Json:
    """Return a node in the format of v1."""
    network = node.spec.get("networkConfig", {}).get("network", "default")
    scheduling = node.spec.get("schedulingConfig", {})
    content: Json = {
        "name": resource_name(world, node.zone, "nodes", node.id),
        "acceleratorType": node.type,
        "tensorflowVersion": node.runtime,
        "network": network,
        "createTime": format_timestamp(node.created),
        "state": node.state,
        "apiVersion": API_VERSION["v1"],
        "schedulingConfig": {
            name: True for name in ("preemptible", "reserved") if scheduling.get(name)
        },
        "serviceAccount": node.spec.get("serviceAccount", {}).get("email", ""),
        "networkEndpoints": [
            {"ipAddress": worker.internal_ip, "port": PORT} for worker in node.workers
        ],
        "health": node.health,
        "healthDescription": node.health_description,
        "description": node.spec.get("description", ""),
        "labels": node.spec.get("labels", {}),
        "cidrBlock": node.cidr,
    }
    if node.workers:
        content["ipAddress"], content["port"] = node.workers[0].internal_ip, str(PORT)
    return {name: value for name, value in content.items() if value}


def upcoming_json(upcoming: UpcomingMaintenance) -> Json:
    content: Json = {
        "type": upcoming.type,
        "windowStartTime": format_timestamp(upcoming.window_start),
        "windowEndTime": format_timestamp(upcoming.window_end),
        "latestWindowStartTime": format_timestamp(upcoming.latest_window_start),
        "maintenanceStatus": upcoming.status,
    }
    if upcoming.can_reschedule:
        content["canReschedule"] = True
    return content


def request_json(world: World, request: QueuedResource, version: str) -> Json:
    parent = f"projects/{world.settings.project}/locations/{request.zone}"
    content: Json = {
        "name": resource_name(world, request.zone, "queuedResources", request.id),
        "createTime": format_timestamp(request.created),
        **request.spec,
        "tpu": {
            "nodeSpec": [
                {"parent": parent, "nodeId": slot.node_id, "node": dict(slot.spec)}
                for slot in request.slots
            ]
        },
        "state": state_json(request),
    }
    if request.ends_at is not None:
        run = {
            **request.spec.get("runDuration", {}),
            "terminationTime": format_timestamp(request.ends_at),
        }
        content["runDuration"] = run
    return known_fields(version, "QueuedResource", content)


def state_json(request: QueuedResource) -> Json:
    state: Json = {"state": request.state}
    if request.initiator:
        state["stateInitiator"] = request.initiator
    word = STATE_WORDS.get(request.state)
    if word:
        error = request.error if request.state == "FAILED" else None
        state[word] = {"error": status_json(error)} if error else {}
    return state


def status_json(status: RpcStatus) -> Json:
    content: Json = {"code": status.code, "message": status.message}
    if status.details:
        content["details"] = [dict(one) for one in status.details]
    return content


def operation_json(world: World, operation: Operation, version: str) -> Json:
    """Return an operation; `done` is always present, because clients fail without it."""
    types = f"type.googleapis.com/google.cloud.tpu.{version}"
    metadata: Json = {
        "@type": f"{types}.OperationMetadata",
        "createTime": format_timestamp(operation.created),
        "target": resource_name(world, operation.zone, operation.collection, operation.target),
        "verb": operation.verb,
        "cancelRequested": operation.cancelled,
        "apiVersion": version,
    }
    content: Json = {
        "name": resource_name(world, operation.zone, "operations", operation.id),
        "metadata": metadata,
        "done": operation.ended is not None,
    }
    if operation.ended is None:
        return content
    metadata["endTime"] = format_timestamp(operation.ended)
    if operation.error is not None:
        content["error"] = status_json(operation.error)
    elif operation.node is not None:
        node = node_json(world, operation.node, version)
        if version == "v2":
            node = {name: one for name, one in node.items() if name not in NOT_IN_PROTO}
        content["response"] = {"@type": f"{types}.Node", **node}
    elif operation.request is not None and version != "v1":
        request = request_json(world, operation.request, version)
        content["response"] = {"@type": f"{types}.QueuedResource", **request}
    else:
        content["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty"}
    return content


def reservation_json(world: World, reservation: Reservation, used: int, now: float) -> Json:
    """Return a reservation, which only v2alpha1 has."""
    standard: Json = {
        "size": reservation.size,
        "capacityUnits": "CHIPS",
        "resourceType": reservation.type,
        "interval": {
            "startTime": format_timestamp(reservation.start),
            "endTime": format_timestamp(reservation.end),
        },
        "usage": {"total": str(used)},
    }
    if now < reservation.start:
        state = "APPROVED"
    else:
        state = "ACTIVE" if now < reservation.end else "EXPIRED"
    return {
        "name": resource_name(world, reservation.zone, "reservations", reservation.id),
        "standard": standard,
        "state": state,
    }
