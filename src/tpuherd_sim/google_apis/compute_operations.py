"""Compute's operations: a change is made at once and called done a moment later."""

import json

from tpuherd_sim.google_apis.links import link, project_of
from tpuherd_sim.google_apis.pagination import listing
from tpuherd_sim.model.compute_errors import missing
from tpuherd_sim.model.compute_state import Change, number, stamp
from tpuherd_sim.model.http_types import Call, Json, Response
from tpuherd_sim.model.world import World, scaled
from tpuherd_sim.tpu.errors import JSON_HEADERS
from tpuherd_sim.tpu.router import Route

TAKES_S = 1.0
KEPT = 500  #: older ones are forgotten


def begin(world: World, now: float, verb: str, target: str, target_id: int) -> Json:
    """The operation of a change that has just been made, for the caller to wait for."""
    services = world.services
    tail = f"{services.dice.bits():016x}{services.dice.bits():016x}"
    change = Change(
        name=f"operation-{int(now * 1000)}-{tail[:13]}-{tail[13:21]}-{tail[21:29]}",
        id=number(services.dice),
        verb=verb,
        target=target,
        target_id=target_id,
        created=now,
        ended=now + scaled(world, TAKES_S),
    )
    services.changes[change.name] = change
    while len(services.changes) > KEPT:
        del services.changes[next(iter(services.changes))]
    return render(world, change, now)


def render(world: World, change: Change, now: float) -> Json:
    """An operation as of now. Not the shape of google.longrunning."""
    done = now >= change.ended
    answer: Json = {
        "kind": "compute#operation",
        "id": str(change.id),
        "name": change.name,
        "operationType": change.verb,
        "targetLink": link(world, change.target),
        "targetId": str(change.target_id or world.settings.project_number),
        "status": "DONE" if done else "RUNNING",
        "user": f"user@{world.settings.project}.example",
        "progress": 100 if done else 0,
        "insertTime": stamp(change.created),
        "startTime": stamp(change.created),
        "selfLink": link(world, f"global/operations/{change.name}"),
    }
    if done:
        answer["endTime"] = stamp(change.ended)
    return answer


def find(world: World, call: Call) -> Change:
    """The operation of the path."""
    home, name = project_of(world, call), call.path["operation"]
    change = world.services.changes.get(name)
    if change is None:
        raise missing(f"{home}/global/operations/{name}")
    return change


def get_operation(world: World, call: Call, now: float) -> Json:
    """One operation."""
    return render(world, find(world, call), now)


def wait_operation(world: World, call: Call, now: float) -> Response:
    """One operation, held back until it is done."""
    change = find(world, call)
    return Response(
        body=json.dumps(render(world, change, max(now, change.ended))).encode(),
        headers=JSON_HEADERS,
        delay_s=max(0.0, change.ended - now),
    )


def list_operations(world: World, call: Call, now: float) -> Json:
    """Every operation that is remembered."""
    home = project_of(world, call)
    operations = [render(world, one, now) for one in world.services.changes.values()]
    return listing("operationList", f"{home}/global/operations", operations, call)


ROUTES = (
    Route("GET", "/compute/v1/projects/{project}/global/operations", list_operations),
    Route("GET", "/compute/v1/projects/{project}/global/operations/{operation}", get_operation),
    Route(
        "POST", "/compute/v1/projects/{project}/global/operations/{operation}/wait", wait_operation
    ),
)
