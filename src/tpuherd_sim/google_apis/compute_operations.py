"""Compute's operations: a change takes effect at once and is reported DONE a moment later."""

import json

from tpuherd_sim.google_apis.global_resources import GlobalResources
from tpuherd_sim.google_apis.links import resource_url
from tpuherd_sim.model.compute_state import ComputeOperation, format_compute_time, new_numeric_id
from tpuherd_sim.model.http_types import ApiCall, Json, Response
from tpuherd_sim.model.world import World, scale_duration
from tpuherd_sim.tpu.errors import JSON_HEADERS
from tpuherd_sim.tpu.router import Route

TAKES_S = 1.0
KEPT = 500  #: older ones are dropped


def record_operation(world: World, now: float, verb: str, target: str, target_id: int) -> Json:
    """Record the operation of a change that was just made and return its JSON."""
    services = world.services
    tail = f"{services.dice.random_bits():016x}{services.dice.random_bits():016x}"
    change = ComputeOperation(
        name=f"operation-{int(now * 1000)}-{tail[:13]}-{tail[13:21]}-{tail[21:29]}",
        id=new_numeric_id(services.dice),
        verb=verb,
        target=target,
        target_id=target_id,
        created=now,
        ended=now + scale_duration(world, TAKES_S),
    )
    services.changes[change.name] = change
    while len(services.changes) > KEPT:
        del services.changes[next(iter(services.changes))]
    return compute_operation_json(world, change, now)


def compute_operation_json(world: World, change: ComputeOperation, now: float) -> Json:
    """Return an operation as of now, in Compute's format (not google.longrunning)."""
    done = now >= change.ended
    answer: Json = {
        "kind": "compute#operation",
        "id": str(change.id),
        "name": change.name,
        "operationType": change.verb,
        "targetLink": resource_url(world, change.target),
        "targetId": str(change.target_id or world.settings.project_number),
        "status": "DONE" if done else "RUNNING",
        "user": f"user@{world.settings.project}.example",
        "progress": 100 if done else 0,
        "insertTime": format_compute_time(change.created),
        "startTime": format_compute_time(change.created),
        "selfLink": resource_url(world, f"global/operations/{change.name}"),
    }
    if done:
        answer["endTime"] = format_compute_time(change.ended)
    return answer


OPERATIONS = GlobalResources(
    "operation", lambda world: world.services.changes, compute_operation_json
)


def wait_operation(world: World, call: ApiCall, now: float) -> Response:
    """Return an operation; the response waits until it is done."""
    change = OPERATIONS.find(world, call)
    return Response(
        body=json.dumps(compute_operation_json(world, change, max(now, change.ended))).encode(),
        headers=JSON_HEADERS,
        delay_s=max(0.0, change.ended - now),
    )


WAIT = "/compute/v1/projects/{project}/global/operations/{operation}/wait"

ROUTES = (Route("POST", WAIT, wait_operation),)
