"""Writes records into the world and keeps everything derived from them consistent."""

from dataclasses import replace
from typing import Any

from tpuherd_sim.model.records import Node, QueuedResource, RecordChange, Worker
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem

#: How far back outdated lists can go.
MEMORY_S = 900.0
#: Fields whose change every host of the node sees.
SHARED = ("spec", "preempted", "maintenance_event", "upcoming", "multislice", "state")


def put_node(world: World, node: Node, now: float) -> Node:
    """Store a new or changed node."""
    old = world.nodes.get(node.key)
    world.nodes[node.key] = node
    world.places[node.uid] = node.key
    if old is None or has_other_peers(node, old):
        world.peers.clear()
    remember_change(world, RecordChange(at=now, collection="nodes", key=node.key, old=old))
    mark_changed_hosts(world, node, old)
    return node


def drop_node(world: World, node: Node, now: float) -> None:
    del world.nodes[node.key]
    world.places.pop(node.uid, None)
    forget_rendered(world, node.key)
    world.peers.clear()
    remember_change(world, RecordChange(at=now, collection="nodes", key=node.key, old=node))
    mark_changed_hosts(world, node, None)


def put_request(world: World, request: QueuedResource, now: float) -> QueuedResource:
    """Store a new or changed queued resource."""
    old = world.requests.get(request.key)
    world.requests[request.key] = request
    change = RecordChange(at=now, collection="queuedResources", key=request.key, old=old)
    remember_change(world, change)
    return request


def drop_request(world: World, request: QueuedResource, now: float) -> None:
    del world.requests[request.key]
    forget_rendered(world, request.key)
    change = RecordChange(at=now, collection="queuedResources", key=request.key, old=request)
    remember_change(world, change)


def step_node(world: World, node: Node, now: float, at: float, verb: str, **fields: Any) -> Node:
    """Change a node and schedule its next step, which replaces any planned one."""
    schedule_event(world, at, verb, node.key)
    return put_node(world, replace(node, pending=world.planned, **fields), now)


def step_request(
    world: World, request: QueuedResource, now: float, at: float, verb: str, **fields: Any
) -> QueuedResource:
    """Change a queued resource and schedule its next step, which replaces any planned one."""
    schedule_event(world, at, verb, request.key)
    return put_request(world, replace(request, pending=world.planned, **fields), now)


def current_node(world: World, due: AgendaItem) -> Node | None:
    """Return the node of an agenda item unless its plan changed since."""
    node = world.nodes.get(due.target)
    return node if node is not None and node.pending == due.seq else None


def current_request(world: World, due: AgendaItem) -> QueuedResource | None:
    """Return the queued resource of an agenda item unless its plan changed since."""
    request = world.requests.get(due.target)
    return request if request is not None and request.pending == due.seq else None


def same_node(world: World, due: AgendaItem) -> Node | None:
    """Return the node of an agenda item while it exists, even if its plan changed."""
    node = world.nodes.get(due.target)
    return node if node is not None and node.uid == due.args["uid"] else None


def with_worker(node: Node, worker: Worker) -> Node:
    """Return the node with the changed worker."""
    before, after = node.workers[: worker.index], node.workers[worker.index + 1 :]
    return replace(node, workers=(*before, worker, *after))


def mark_changed_hosts(world: World, node: Node, old: Node | None) -> None:
    """Mark the hosts that may have changed."""
    if old is None or old.uid != node.uid or has_shared_change(node, old):
        changed = list(node.workers)
        if old is not None and old.uid != node.uid:
            world.touched.update(f"{old.uid}-{worker.index}" for worker in old.workers)
    elif old.workers is node.workers:
        return
    elif len(old.workers) != len(node.workers):
        changed = list(node.workers)
    else:
        pairs = zip(node.workers, old.workers, strict=True)
        changed = [new for new, before in pairs if new is not before]
    world.touched.update(f"{node.uid}-{worker.index}" for worker in changed)


def has_other_peers(node: Node, old: Node) -> bool:
    """Whether hosts of the node, or of its slices, have other names or addresses than before."""
    if (old.uid, old.multislice, old.queued_resource, len(old.workers)) != (
        node.uid, node.multislice, node.queued_resource, len(node.workers),
    ):  # fmt: skip
        return True
    return any(
        new is not before and (new.name, new.internal_ip) != (before.name, before.internal_ip)
        for new, before in zip(node.workers, old.workers, strict=True)
    )


def has_shared_change(node: Node, old: Node) -> bool:
    """Whether something that all hosts see has changed."""
    return any(getattr(node, name) != getattr(old, name) for name in SHARED)


def remember_change(world: World, change: RecordChange) -> None:
    """Keep the previous version for outdated lists."""
    world.pages.clear()
    past = world.past
    past.append(change)
    while past[0].at < change.at - MEMORY_S:
        past.popleft()


def forget_rendered(world: World, key: str) -> None:
    """Drop the cached JSON of a removed record."""
    for kind in ("v1", "v2", "v2alpha1", "Qv2", "Qv2alpha1"):
        world.rendered.pop((kind, key), None)
