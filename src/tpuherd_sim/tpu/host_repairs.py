"""Hosts come up, reboot, fail and are repaired; they tell the service of themselves."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tpuherd_sim.model.records import MOVING, GuestAttribute, Node, Status, Worker
from tpuherd_sim.model.strike_rules import strike
from tpuherd_sim.model.world import World, note, plan
from tpuherd_sim.model.world_parts import Due
from tpuherd_sim.tpu import lifecycle, machines
from tpuherd_sim.tpu.durations import throw
from tpuherd_sim.tpu.timestamps import timestamp
from tpuherd_sim.tpu.writes import current, put, same_node, step, with_worker

#: A host that writes without end fills its own list only.
GUEST_ATTRIBUTES_MAX = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a running host says of itself."""

    event: str  #: up, rebooted, off or failed
    boot: int  #: which of its boots that is about
    why: str = ""


def reported(world: World, node: Node, worker: Worker, report: Report, now: float) -> None:
    """A running host says how it is: up, rebooted from inside, off, or failed to come up."""
    event, boot, why = report.event, report.boot, report.why
    if boot != worker.boot:
        return  # late news of an earlier boot
    note(world, now, f"host.{event}", node=node.key, worker=worker.index, boot=boot, why=why)
    if event == "up":
        worker = replace(worker, up=boot)
        lifecycle.arrive_if_up(world, put(world, with_worker(node, worker), now), now)
    elif event == "rebooted":
        put(world, with_worker(node, replace(worker, boot=boot + 1)), now)
    elif node.state == "CREATING" and event == "failed":
        text = (
            f"an internal error has occurred: {worker.name} did not come up ({why or 'no reason'})"
        )
        if node.queued_resource:
            key = f"{node.zone}/{node.queued_resource}"
            plan(world, now, "request.failed", key, code=13, message=text)
        else:
            lifecycle.refuse(world, node, Status(code=13, message=text), now)
    else:
        lose(world, node, worker, now)


def tell(world: World, node: Node, worker: Worker, fresh: GuestAttribute, now: float) -> None:
    """A host writes something about itself; the weather may hold it back for a while."""
    rule = strike(world, "slow-keys", now, **machines.facts(node))
    if rule is None:
        put(world, with_worker(node, with_attribute(worker, fresh)), now)
        return
    at = now + float(rule.params.get("seconds", 60.0))
    facts = {"namespace": fresh.namespace, "name": fresh.name, "value": fresh.value}
    plan(world, at, "host.told", node.key, uid=node.uid, worker=worker.index, **facts)


def told(world: World, due: Due) -> None:
    """What a host wrote is seen at last."""
    node, facts = same_node(world, due), due.args
    if node is not None and facts["worker"] < len(node.workers):
        fresh = GuestAttribute(
            namespace=facts["namespace"], name=facts["name"], value=facts["value"]
        )
        worker = with_attribute(node.workers[facts["worker"]], fresh)
        put(world, with_worker(node, worker), due.at)


def with_attribute(worker: Worker, fresh: GuestAttribute) -> Worker:
    """The worker with a new guest attribute, or a new value of it."""
    name = (fresh.namespace, fresh.name)
    kept = [one for one in worker.guest if (one.namespace, one.name) != name]
    return replace(worker, guest=(*kept, fresh)[-GUEST_ATTRIBUTES_MAX:])


def lose(world: World, node: Node, worker: Worker, now: float) -> None:
    """A host has no power any more. The service will see it and repair the node."""
    node = put(world, with_worker(node, replace(worker, on=False)), now)
    if node.state == "READY":
        at = now + throw(world, "node.notice")
        plan(world, at, "node.repair", node.key, uid=node.uid)
    elif node.state in MOVING and node.state != "STOPPING":
        # It was on its way already: that takes longer now.
        step(world, node, now, now + throw(world, "node.repair"), "node.repaired")


def repair(world: World, due: Due) -> None:
    """The service saw that a host is lost."""
    node = same_node(world, due)
    if node is None or node.state != "READY" or all(worker.on for worker in node.workers):
        return
    note(world, due.at, "node.repairing", node=node.key)
    node = replace(
        node,
        state="REPAIRING",
        health="TIMEOUT",
        health_description=f"The TPU did not respond at {timestamp(due.at)}",
    )
    step(world, node, due.at, due.at + throw(world, "node.repair"), "node.repaired")


def repaired(world: World, due: Due) -> None:
    """Lost hosts are switched on again; the node is READY when they are up."""
    node = current(world, due)
    if node is None:
        return
    workers = tuple(
        worker if worker.on else replace(worker, on=True, hung=False, boot=worker.boot + 1)
        for worker in node.workers
    )
    node = put(world, replace(node, workers=workers, pending=0, due_at=due.at), due.at)
    lifecycle.arrive_if_up(world, node, due.at)


AGENDA: dict[str, Callable[[World, Due], None]] = {
    "host.told": told,
    "node.repair": repair,
    "node.repaired": repaired,
}
