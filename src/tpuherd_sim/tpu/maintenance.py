"""Maintenance: announced, begun, over; simulated and brought forward by users of v2alpha1."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from tpuherd_sim.model.http_types import Call, Json
from tpuherd_sim.model.records import Node, Operation, Status, Upcoming
from tpuherd_sim.model.world import World, note, plan, scaled
from tpuherd_sim.model.world_parts import Due
from tpuherd_sim.tpu import lifecycle, machines, nodes, operations, queued_resources
from tpuherd_sim.tpu.errors import not_found, precondition
from tpuherd_sim.tpu.names import resource
from tpuherd_sim.tpu.queued_lifecycle import nodes_of
from tpuherd_sim.tpu.render import operation_json, upcoming_json
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.tpu.timestamps import timestamp
from tpuherd_sim.tpu.writes import put, same_node, step, with_worker

TERMINATE = "TERMINATE_ON_HOST_MAINTENANCE"
WARNING_S = 60.0  #: so long before the begin the hosts' metadata says so
GRACE_S = 30.0  #: so long before it their power button is pressed
#: Announced so long ahead, maintenance is a scheduled one, and users may choose their own hour.
SCHEDULED_S_MIN = 3600.0
WINDOW_S = 4 * 3600.0
SIMULATED_S = 60.0
DURATION_S = 120.0
LOST = Status(code=10, message="The node was lost before the maintenance was over.")


def announce(
    world: World, node: Node, now: float, *, notice_s: float, duration_s: float, change_ip: bool
) -> None:
    """A node will be maintained. The notice is wall time; how long it takes is the cloud's."""
    begins = now + notice_s
    scheduled = notice_s >= SCHEDULED_S_MIN
    upcoming = Upcoming(
        type="SCHEDULED" if scheduled else "UNSCHEDULED",
        can_reschedule=scheduled,
        window_start=begins,
        window_end=begins + WINDOW_S,
        latest_window_start=begins,
        status="PENDING",
        duration_s=duration_s,
        change_ip=change_ip,
    )
    put(world, replace(node, upcoming=upcoming), now)
    note(world, now, "maintenance.announced", node=node.key, begins=begins)
    for verb, before in (("warn", WARNING_S), ("press", GRACE_S), ("begin", 0.0)):
        at = max(begins - before, now)
        plan(world, at, f"maintenance.{verb}", node.key, uid=node.uid, begins=begins)


def announced(world: World, due: Due) -> Node | None:
    """The node, if the maintenance of an agenda item still stands."""
    node = same_node(world, due)
    if node is None or node.state != "READY" or node.upcoming is None:
        return None
    upcoming = node.upcoming
    fits = upcoming.status == "PENDING" and upcoming.window_start == due.args["begins"]
    return node if fits else None


def warn(world: World, due: Due) -> None:
    """The hosts' metadata says what is to come."""
    node = announced(world, due)
    if node is not None:
        put(world, replace(node, maintenance_event=TERMINATE), due.at)


def press(world: World, due: Due) -> None:
    """The hosts are asked to shut down."""
    node = announced(world, due)
    if node is not None:
        put(world, machines.press(node), due.at)


def begin(world: World, due: Due) -> None:
    """It begins; a node that has other troubles by then is spared."""
    node = announced(world, due)
    if node is not None:
        undertake(world, node, due.at)
        return
    node = same_node(world, due)
    if node is None or node.upcoming is None or node.state == "READY":
        return
    if node.upcoming.status == "PENDING" and node.upcoming.window_start == due.args["begins"]:
        put(world, replace(node, upcoming=None, maintenance_event="NONE"), due.at)


def undertake(world: World, node: Node, now: float, operation: str | None = None) -> None:
    """The hosts go down; with the same disk they come up again later."""
    if node.upcoming is None:
        return
    note(world, now, "maintenance.begun", node=node.key)
    upcoming = replace(node.upcoming, status="ONGOING")
    node = replace(
        machines.power_off(world, node, keep_external=True),
        state="RESTARTING",
        health="UNHEALTHY_MAINTENANCE",
        health_description=f"The TPU had a maintenance event at {timestamp(now)}",
        maintenance_event=TERMINATE,
        upcoming=upcoming,
        operation=operation,
    )
    step(world, node, now, now + scaled(world, upcoming.duration_s), "maintenance.over")


def over(world: World, due: Due) -> None:
    """The hosts are switched on again; the node is READY when they are up."""
    node = world.nodes.get(due.target)
    if node is None or node.pending != due.seq:
        return
    change_ip = node.upcoming.change_ip if node.upcoming else False
    node = machines.power_on(world, node, new_external=change_ip)
    note(world, due.at, "maintenance.over", node=node.key)
    node = put(world, replace(node, pending=0, due_at=due.at), due.at)
    lifecycle.arrive_if_up(world, node, due.at)


# -- what users ask of v2alpha1 -------------------------------------------------------------------


def simulate(world: World, call: Call, now: float) -> Json:
    """Hosts are told of maintenance and restarted; only the first worker named, or worker 0."""
    node = nodes.find(world, call, now)
    asked = [one for one in call.body.get("workerIds", ()) if one]
    worker = nodes.worker_of(node, asked[0] if asked else "0") if node.workers else None
    if node.state != "READY" or worker is None:
        node = nodes.permitted(world, call, now, "stop")
    operation = nodes.begin(world, node, now, "nodes.simulateMaintenanceEvent")
    index = worker.index if worker else 0
    facts = {"uid": node.uid, "worker": index, "operation": operation.key}
    if worker is not None:
        told = replace(worker, maintenance_event=TERMINATE)
        if node.spec.get("autocheckpointEnabled"):
            told = replace(told, soft_off=told.soft_off + 1)
        put(world, with_worker(node, told), now)
        note(world, now, "maintenance.simulated", node=node.key, worker=index)
    plan(world, now + SIMULATED_S, "maintenance.simulated", node.key, **facts)
    return operation_json(world, operation, call.version)


def simulated(world: World, due: Due) -> None:
    """The host that was told restarts."""
    node = same_node(world, due)
    index = int(due.args["worker"])
    if node is None or node.state != "READY" or index >= len(node.workers):
        operations.finish(world, due.args["operation"], due.at, error=LOST)
        return
    worker = node.workers[index]
    worker = replace(worker, maintenance_event="NONE", boot=worker.boot + 1, on=True)
    description = f"The TPU had a maintenance event at {timestamp(due.at)}"
    node = replace(with_worker(node, worker), health_description=description)
    operations.finish(world, due.args["operation"], due.at, node=put(world, node, due.at))


def perform(world: World, call: Call, now: float) -> Json:
    """Maintenance that was announced begins now."""
    node = nodes.find(world, call, now)
    check_movable([node])
    operation = nodes.begin(world, node, now, "nodes.performMaintenance")
    undertake(world, node, now, operation.key)
    return operation_json(world, operation, call.version)


def perform_request(world: World, call: Call, now: float) -> Json:
    """The same for nodes of a queued resource."""
    request = queued_resources.find(world, call, now)
    names = {name.rpartition("/")[2] for name in call.body.get("nodeNames", ())}
    found = {node.id: node for node in nodes_of(world, request)}
    for name in sorted(names - found.keys()):
        raise not_found(resource(world, request.zone, "nodes", name))
    chosen = [node for id, node in found.items() if not names or id in names]
    check_movable(chosen)
    operation = queued_resources.begin(
        world, request, now, "queuedResources.performMaintenanceQueuedResource"
    )
    for node in chosen:
        undertake(world, node, now)
    lasts = max(node.upcoming.duration_s for node in chosen if node.upcoming)
    plan(world, now + scaled(world, lasts), "maintenance.performed", operation.key)
    return operation_json(world, operation, call.version)


def performed(world: World, due: Due) -> None:
    """The nodes of a queued resource were maintained."""
    operation: Operation | None = world.operations.get(due.target)
    if operation is not None:
        request = world.requests.get(f"{operation.zone}/{operation.target}")
        operations.finish(world, operation.key, due.at, request=request)


def check_movable(chosen: Iterable[Node]) -> None:
    """Only announced maintenance that may be moved can be brought forward."""
    many = list(chosen)
    for node in many:
        if node.state != "READY" or node.upcoming is None or not node.upcoming.can_reschedule:
            raise precondition(
                f"Node {node.id} has no upcoming maintenance that can be started manually."
            )
    if not many:
        raise precondition("The queued resource has no nodes.")


def information(world: World, call: Call, now: float) -> Json:
    """What is announced for the nodes of a queued resource."""
    request = queued_resources.find(world, call, now)
    entries = [
        {
            "nodeName": resource(world, node.zone, "nodes", node.id),
            "nodeUid": str(node.uid),
            "upcomingMaintenance": upcoming_json(node.upcoming),
        }
        for node in nodes_of(world, request)
        if node.upcoming is not None
    ]
    return {"nodeUpcomingMaintenances": entries} if entries else {}


PLACE = "/v2alpha1/projects/{project}/locations/{zone}"
ROUTES = (
    Route("POST", f"{PLACE}/nodes/{{node}}:simulateMaintenanceEvent", simulate),
    Route("POST", f"{PLACE}/nodes/{{node}}:performMaintenance", perform),
    Route("GET", f"{PLACE}/queuedResources/{{request}}:getMaintenanceInfo", information),
    Route(
        "POST",
        f"{PLACE}/queuedResources/{{request}}:performMaintenanceQueuedResource",
        perform_request,
    ),
)
AGENDA: dict[str, Callable[[World, Due], None]] = {
    "maintenance.warn": warn,
    "maintenance.press": press,
    "maintenance.begin": begin,
    "maintenance.over": over,
    "maintenance.simulated": simulated,
    "maintenance.performed": performed,
}
