"""Maintenance: announced, started, finished; simulated and moved forward in v2alpha1."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from tpuherd_sim.model.http_types import ApiCall, Json
from tpuherd_sim.model.records import Node, Operation, RpcStatus, UpcomingMaintenance
from tpuherd_sim.model.world import World, log_event, scale_duration, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu import lifecycle, machines, nodes, operations, queued_resources
from tpuherd_sim.tpu.errors import not_found_error, precondition_error
from tpuherd_sim.tpu.names import resource_name
from tpuherd_sim.tpu.queued_lifecycle import request_nodes
from tpuherd_sim.tpu.render import operation_json, upcoming_json
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.tpu.timestamps import format_timestamp
from tpuherd_sim.tpu.writes import put_node, same_node, step_node, with_worker

TERMINATE = "TERMINATE_ON_HOST_MAINTENANCE"
WARNING_S = 60.0  #: before the start, when the hosts' metadata announces it
GRACE_S = 30.0  #: before the start, when the power buttons are pressed
#: With this much notice maintenance is scheduled, and users may choose an earlier time.
SCHEDULED_S_MIN = 3600.0
WINDOW_S = 4 * 3600.0
SIMULATED_S = 60.0
LOST = RpcStatus(code=10, message="The node was lost before the maintenance was over.")


def announce_maintenance(
    world: World, node: Node, now: float, *, notice_s: float, duration_s: float, change_ip: bool
) -> None:
    """Announce maintenance of a node. The notice is wall time; the duration is cloud time."""
    begins = now + notice_s
    scheduled = notice_s >= SCHEDULED_S_MIN
    upcoming = UpcomingMaintenance(
        type="SCHEDULED" if scheduled else "UNSCHEDULED",
        can_reschedule=scheduled,
        window_start=begins,
        window_end=begins + WINDOW_S,
        latest_window_start=begins,
        status="PENDING",
        duration_s=duration_s,
        change_ip=change_ip,
    )
    put_node(world, replace(node, upcoming=upcoming), now)
    log_event(world, now, "maintenance.announced", node=node.key, begins=begins)
    for verb, before in (("warn", WARNING_S), ("press", GRACE_S), ("begin", 0.0)):
        at = max(begins - before, now)
        schedule_event(world, at, f"maintenance.{verb}", node.key, uid=node.uid, begins=begins)


def announced_node(world: World, due: AgendaItem) -> Node | None:
    """Return the node if the maintenance of an agenda item is still planned."""
    node = same_node(world, due)
    if node is None or node.state != "READY" or node.upcoming is None:
        return None
    upcoming = node.upcoming
    fits = upcoming.status == "PENDING" and upcoming.window_start == due.args["begins"]
    return node if fits else None


def warn_hosts(world: World, due: AgendaItem) -> None:
    """Announce the maintenance in the hosts' metadata."""
    node = announced_node(world, due)
    if node is not None:
        put_node(world, replace(node, maintenance_event=TERMINATE), due.at)


def ask_hosts_to_stop(world: World, due: AgendaItem) -> None:
    """Ask the hosts to shut down."""
    node = announced_node(world, due)
    if node is not None:
        put_node(world, machines.press_power_buttons(node), due.at)


def begin_maintenance(world: World, due: AgendaItem) -> None:
    """Start the maintenance, unless the node has other problems by then."""
    node = announced_node(world, due)
    if node is not None:
        take_hosts_down(world, node, due.at)
        return
    node = same_node(world, due)
    if node is None or node.upcoming is None or node.state == "READY":
        return
    if node.upcoming.status == "PENDING" and node.upcoming.window_start == due.args["begins"]:
        put_node(world, replace(node, upcoming=None, maintenance_event="NONE"), due.at)


def take_hosts_down(world: World, node: Node, now: float, operation: str | None = None) -> None:
    """Power off the hosts; they boot later with the same disk."""
    if node.upcoming is None:
        return
    log_event(world, now, "maintenance.begun", node=node.key)
    upcoming = replace(node.upcoming, status="ONGOING")
    node = replace(
        machines.power_off(world, node, keep_external=True),
        state="RESTARTING",
        health="UNHEALTHY_MAINTENANCE",
        health_description=f"The TPU had a maintenance event at {format_timestamp(now)}",
        maintenance_event=TERMINATE,
        upcoming=upcoming,
        operation=operation,
    )
    step_node(
        world, node, now, now + scale_duration(world, upcoming.duration_s), "maintenance.over"
    )


def finish_maintenance(world: World, due: AgendaItem) -> None:
    """Power on the hosts; the node is READY when they are up."""
    node = world.nodes.get(due.target)
    if node is None or node.pending != due.seq:
        return
    change_ip = node.upcoming.change_ip if node.upcoming else False
    node = machines.power_on(world, node, new_external=change_ip)
    log_event(world, due.at, "maintenance.over", node=node.key)
    node = put_node(world, replace(node, pending=0, due_at=due.at), due.at)
    lifecycle.mark_ready_if_up(world, node, due.at)


# -- requests of v2alpha1 -------------------------------------------------------------------------


def simulate_maintenance(world: World, call: ApiCall, now: float) -> Json:
    """Announce maintenance to a host and reboot it; only the first worker named, or worker 0."""
    node = nodes.find_node(world, call, now)
    asked = [one for one in call.body.get("workerIds", ()) if one]
    worker = nodes.worker_by_index(node, asked[0] if asked else "0") if node.workers else None
    if node.state != "READY" or worker is None:
        node = nodes.find_permitted_node(world, call, now, "stop")
    operation = nodes.begin_node_operation(world, node, now, "nodes.simulateMaintenanceEvent")
    index = worker.index if worker else 0
    facts = {"uid": node.uid, "worker": index, "operation": operation.key}
    if worker is not None:
        warned = replace(worker, maintenance_event=TERMINATE)
        if node.spec.get("autocheckpointEnabled"):
            warned = replace(warned, soft_off=warned.soft_off + 1)
        put_node(world, with_worker(node, warned), now)
        log_event(world, now, "maintenance.simulated", node=node.key, worker=index)
    schedule_event(world, now + SIMULATED_S, "maintenance.simulated", node.key, **facts)
    return operation_json(world, operation, call.version)


def finish_simulation(world: World, due: AgendaItem) -> None:
    """Reboot the host."""
    node = same_node(world, due)
    index = int(due.args["worker"])
    if node is None or node.state != "READY" or index >= len(node.workers):
        operations.finish_operation(world, due.args["operation"], due.at, error=LOST)
        return
    worker = node.workers[index]
    worker = replace(worker, maintenance_event="NONE", boot=worker.boot + 1, on=True)
    description = f"The TPU had a maintenance event at {format_timestamp(due.at)}"
    node = replace(with_worker(node, worker), health_description=description)
    operations.finish_operation(
        world, due.args["operation"], due.at, node=put_node(world, node, due.at)
    )


def perform_maintenance(world: World, call: ApiCall, now: float) -> Json:
    """Start announced maintenance now."""
    node = nodes.find_node(world, call, now)
    check_movable([node])
    operation = nodes.begin_node_operation(world, node, now, "nodes.performMaintenance")
    take_hosts_down(world, node, now, operation.key)
    return operation_json(world, operation, call.version)


def perform_request_maintenance(world: World, call: ApiCall, now: float) -> Json:
    """Start announced maintenance of the nodes of a queued resource now."""
    request = queued_resources.find_queued_resource(world, call, now)
    names = {name.rpartition("/")[2] for name in call.body.get("nodeNames", ())}
    found = {node.id: node for node in request_nodes(world, request)}
    for name in sorted(names - found.keys()):
        raise not_found_error(resource_name(world, request.zone, "nodes", name))
    chosen = [node for id, node in found.items() if not names or id in names]
    check_movable(chosen)
    operation = queued_resources.begin_request_operation(
        world, request, now, "queuedResources.performMaintenanceQueuedResource"
    )
    for node in chosen:
        take_hosts_down(world, node, now)
    lasts = max(node.upcoming.duration_s for node in chosen if node.upcoming)
    schedule_event(
        world, now + scale_duration(world, lasts), "maintenance.performed", operation.key
    )
    return operation_json(world, operation, call.version)


def finish_request_maintenance(world: World, due: AgendaItem) -> None:
    operation: Operation | None = world.operations.get(due.target)
    if operation is not None:
        request = world.requests.get(f"{operation.zone}/{operation.target}")
        operations.finish_operation(world, operation.key, due.at, request=request)


def check_movable(chosen: Iterable[Node]) -> None:
    """Refuse unless the maintenance is announced and can be moved forward."""
    many = list(chosen)
    for node in many:
        if node.state != "READY" or node.upcoming is None or not node.upcoming.can_reschedule:
            raise precondition_error(
                f"Node {node.id} has no upcoming maintenance that can be started manually."
            )
    if not many:
        raise precondition_error("The queued resource has no nodes.")


def get_maintenance_info(world: World, call: ApiCall, now: float) -> Json:
    """Get the announced maintenance of the nodes of a queued resource."""
    request = queued_resources.find_queued_resource(world, call, now)
    entries = [
        {
            "nodeName": resource_name(world, node.zone, "nodes", node.id),
            "nodeUid": str(node.uid),
            "upcomingMaintenance": upcoming_json(node.upcoming),
        }
        for node in request_nodes(world, request)
        if node.upcoming is not None
    ]
    return {"nodeUpcomingMaintenances": entries} if entries else {}


PLACE = "/v2alpha1/projects/{project}/locations/{zone}"
ROUTES = (
    Route("POST", f"{PLACE}/nodes/{{node}}:simulateMaintenanceEvent", simulate_maintenance),
    Route("POST", f"{PLACE}/nodes/{{node}}:performMaintenance", perform_maintenance),
    Route("GET", f"{PLACE}/queuedResources/{{request}}:getMaintenanceInfo", get_maintenance_info),
    Route(
        "POST",
        f"{PLACE}/queuedResources/{{request}}:performMaintenanceQueuedResource",
        perform_request_maintenance,
    ),
)
AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {
    "maintenance.warn": warn_hosts,
    "maintenance.press": ask_hosts_to_stop,
    "maintenance.begin": begin_maintenance,
    "maintenance.over": finish_maintenance,
    "maintenance.simulated": finish_simulation,
    "maintenance.performed": finish_request_maintenance,
}
