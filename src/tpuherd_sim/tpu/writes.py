"""Putting records into the world, so that everything that follows from them is kept in step."""

from dataclasses import replace
from typing import Any

from tpuherd_sim.model.records import Node, QueuedResource, RecordChange, Worker
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem

#: How long back lists can be shown as they were.
MEMORY_S = 900.0
#: A change of one of these is seen by every host of the node.
SHARED = ("spec", "preempted", "maintenance_event", "upcoming", "multislice", "state")


def put_node(world: World, node: Node, now: float) -> Node:
    """A new or changed node takes its place."""
    old = world.nodes.get(node.key)
    world.nodes[node.key] = node
    world.places[node.uid] = node.key
    remember_change(world, RecordChange(at=now, collection="nodes", key=node.key, old=old))
    mark_changed_hosts(world, node, old)
    return node


def drop_node(world: World, node: Node, now: float) -> None:
    """A node is no more."""
    del world.nodes[node.key]
    world.places.pop(node.uid, None)
    forget_rendered(world, node.key)
    remember_change(world, RecordChange(at=now, collection="nodes", key=node.key, old=node))
    mark_changed_hosts(world, node, None)


def put_request(world: World, request: QueuedResource, now: float) -> QueuedResource:
    """A new or changed queued resource takes its place."""
    old = world.requests.get(request.key)
    world.requests[request.key] = request
    change = RecordChange(at=now, collection="queuedResources", key=request.key, old=old)
    remember_change(world, change)
    return request


def drop_request(world: World, request: QueuedResource, now: float) -> None:
    """A queued resource is no more."""
    del world.requests[request.key]
    forget_rendered(world, request.key)
    change = RecordChange(at=now, collection="queuedResources", key=request.key, old=request)
    remember_change(world, change)


def step_node(world: World, node: Node, now: float, at: float, verb: str, **fields: Any) -> Node:
    """Change a node, and plan how it goes on: whatever was planned before is off."""
    schedule_event(world, at, verb, node.key)
    return put_node(world, replace(node, pending=world.planned, **fields), now)


def step_request(
    world: World, request: QueuedResource, now: float, at: float, verb: str, **fields: Any
) -> QueuedResource:
    """The same for a queued resource."""
    schedule_event(world, at, verb, request.key)
    return put_request(world, replace(request, pending=world.planned, **fields), now)


def current_node(world: World, due: AgendaItem) -> Node | None:
    """The node of an agenda item, unless something else happened to it since."""
    node = world.nodes.get(due.target)
    return node if node is not None and node.pending == due.seq else None


def current_request(world: World, due: AgendaItem) -> QueuedResource | None:
    """The queued resource of an agenda item, unless something else happened to it since."""
    request = world.requests.get(due.target)
    return request if request is not None and request.pending == due.seq else None


def same_node(world: World, due: AgendaItem) -> Node | None:
    """The node of an agenda item that concerns it whatever else happens, while it exists."""
    node = world.nodes.get(due.target)
    return node if node is not None and node.uid == due.args["uid"] else None


def with_worker(node: Node, worker: Worker) -> Node:
    """The node with a changed worker in its place."""
    before, after = node.workers[: worker.index], node.workers[worker.index + 1 :]
    return replace(node, workers=(*before, worker, *after))


def mark_changed_hosts(world: World, node: Node, old: Node | None) -> None:
    """Say which hosts may be different now."""
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


def has_shared_change(node: Node, old: Node) -> bool:
    """Whether something that all hosts see has changed."""
    return any(getattr(node, name) != getattr(old, name) for name in SHARED)


def remember_change(world: World, change: RecordChange) -> None:
    """Keep what was, for lists that are out of date."""
    world.pages.clear()
    past = world.past
    past.append(change)
    while past[0].at < change.at - MEMORY_S:
        past.popleft()


def forget_rendered(world: World, key: str) -> None:
    """Drop what was rendered of a record that is no more."""
    for kind in ("v1", "v2", "v2alpha1", "Qv2", "Qv2alpha1"):
        world.rendered.pop((kind, key), None)
