"""What must hold of a world after any requests."""

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tpuherd.catalogue import accelerators, zones
from tpuherd_sim.handle import next_due_time
from tpuherd_sim.model.records import MOVING
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_codec import dump_world, load_world
from tpuherd_sim.tpu.host_reports import host_views

#: States of a queued resource in which none of its nodes may be there.
WITHOUT_NODES = {"ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED"}
OPERATION = re.compile(r"operation-[0-9]+-[0-9a-f]{13}-[0-9a-f]{8}-[0-9a-f]{8}")


def broken(world: World, now: float) -> list[str]:
    """Every invariant that does not hold, as sentences; the cheap ones."""
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(world, now)]


def forgotten(world: World) -> list[str]:
    """What is lost when the world is written down and read back."""
    written = dump_world(world)
    again = load_world(json.loads(json.dumps(written)))
    faults = []
    if dump_world(again) != written:
        faults.append("a world that was read back is written down otherwise")
    if host_views(again) != host_views(world):
        faults.append("a world that was read back has other hosts")
    return faults


def twice(things: Iterable[Any]) -> list[Any]:
    """What occurs more than once."""
    return [thing for thing, times in Counter(things).items() if times > 1]


def keys_name_their_records(world: World, now: float) -> Iterator[str]:
    for records in (world.nodes, world.requests, world.operations):
        for key, record in records.items():
            if key != f"{record.zone}/{record.id}":
                yield f"{record.zone}/{record.id} is kept under {key}"
            if record.zone not in zones():
                yield f"{key} is in no zone with TPUs"
            if record.created > now:
                yield f"{key} was made in the future"


def nodes_are_sold_in_their_zones(world: World, now: float) -> Iterator[str]:
    for key, node in world.nodes.items():
        if node.zone in zones() and node.type not in zones()[node.zone].types:
            yield f"{key} is a {node.type}"


def nodes_have_all_their_workers(world: World, now: float) -> Iterator[str]:
    for key, node in world.nodes.items():
        hosts = accelerators()[node.type].hosts
        if [worker.index for worker in node.workers] not in ([], list(range(hosts))):
            yield f"{key} ({node.type}, {node.state}) has {len(node.workers)} workers"
        if node.state == "READY" and not node.workers:
            yield f"{key} is READY without machines"


def addresses_are_used_once(world: World, now: float) -> Iterator[str]:
    workers = [worker for node in world.nodes.values() for worker in node.workers]
    outside = [worker.external_ip for worker in workers if worker.external_ip is not None]
    for address in twice(outside):
        yield f"two live hosts have {address}"
    inside = [worker.internal_ip for worker in workers]
    for address in twice(inside):
        yield f"two live hosts have {address} inside"
    for address in twice(worker.name for worker in workers):
        yield f"two live hosts are called {address}"
    for address in {*outside, *inside} & {*world.books.external_free, *world.books.internal_free}:
        yield f"{address} is in use and free"
    for pool in (world.books.external_free, world.books.internal_free):
        for address in twice(pool):
            yield f"{address} is free twice"
    books = world.books
    if len(outside) + len(books.external_free) != books.external_made:
        yield f"{books.external_made} external addresses were made, {len(outside)} are used"
    if len(inside) + len(books.internal_free) != books.internal_made:
        yield f"{books.internal_made} internal addresses were made, {len(inside)} are used"


def numbers_are_used_once(world: World, now: float) -> Iterator[str]:
    for uid in twice(node.uid for node in world.nodes.values()):
        yield f"two nodes are number {uid}"
    workers = [worker.uid for node in world.nodes.values() for worker in node.workers]
    for uid in twice(workers):
        yield f"two hosts are number {uid}"


def nodes_belong_to_their_requests(world: World, now: float) -> Iterator[str]:
    for key, node in world.nodes.items():
        if node.queued_resource is None:
            continue
        request = world.requests.get(f"{node.zone}/{node.queued_resource}")
        if request is None:
            yield f"{key} belongs to {node.queued_resource}, which is no more"
        elif node.id not in {slot.node_id for slot in request.slots}:
            yield f"{key} belongs to {node.queued_resource}, which did not ask for it"


def requests_have_the_nodes_of_their_state(world: World, now: float) -> Iterator[str]:
    #: Requests that have yet to notice what became of their nodes.
    unaware = {due.target for due in world.agenda if due.verb == "request.look"}
    for key, request in world.requests.items():
        nodes = [world.nodes.get(f"{request.zone}/{slot.node_id}") for slot in request.slots]
        own = [node for node in nodes if node and node.queued_resource == request.id]
        if request.state in WITHOUT_NODES and own:
            yield f"{key} is {request.state} and has {[node.id for node in own]}"
        if request.state == "ACTIVE" and len(own) < len(request.slots) and key not in unaware:
            yield f"{key} is ACTIVE with {len(own)} of {len(request.slots)} nodes"
        if request.state == "FAILED" and request.error is None:
            yield f"{key} is FAILED without an error"


def operations_are_well_formed(world: World, now: float) -> Iterator[str]:
    for key, operation in world.operations.items():
        if not OPERATION.fullmatch(operation.id):
            yield f"{key} is an odd name"
        if operation.collection not in ("nodes", "queuedResources") or not operation.target:
            yield f"{key} is about {operation.collection}/{operation.target}"
        if operation.ended is not None and not operation.created <= operation.ended <= now:
            yield f"{key} began at {operation.created} and ended at {operation.ended}"
        if operation.error is not None and not 1 <= operation.error.code <= 16:
            yield f"{key} has error code {operation.error.code}"


def agenda_is_a_heap_of_the_future(world: World, now: float) -> Iterator[str]:
    for due in world.agenda:
        if due.at < now:
            yield f"{due.verb} of {due.target} was due {now - due.at} s ago"
        if due.seq > world.planned:
            yield f"{due.verb} of {due.target} has number {due.seq} of {world.planned}"
    for place in range(1, len(world.agenda)):
        if world.agenda[place] < world.agenda[(place - 1) // 2]:
            yield f"item {place} is before its parent"
    ahead = next_due_time(world)
    first = heapq.nsmallest(1, world.agenda)
    if ahead != (first[0].at if first else None):
        yield f"next_due says {ahead}"


def log_goes_forward(world: World, now: float) -> Iterator[str]:
    times = [line.at for line in world.log[-200:]]
    if times != sorted(times):
        yield "a line is before the one before it"
    if times and times[-1] > now:
        yield "its last line is of the future"


def hosts_are_those_of_nodes(world: World, now: float) -> Iterator[str]:
    for key, view in host_views(world).items():
        node = world.nodes.get(f"{view.zone}/{view.node}")
        if node is None or key != f"{node.uid}-{view.worker}" or view.key != key:
            yield f"{key} is a host of no node"


RULES: tuple[Callable[[World, float], Iterator[str]], ...] = (
    keys_name_their_records,
    nodes_are_sold_in_their_zones,
    nodes_have_all_their_workers,
    addresses_are_used_once,
    numbers_are_used_once,
    nodes_belong_to_their_requests,
    requests_have_the_nodes_of_their_state,
    operations_are_well_formed,
    agenda_is_a_heap_of_the_future,
    log_goes_forward,
    hosts_are_those_of_nodes,
)


def restless(world: World) -> Iterator[str]:
    """What is still under way, though the weather is fair and nobody has asked for anything."""
    for key, node in world.nodes.items():
        if node.state in MOVING or node.state == "DELETING":
            yield f"{key} is {node.state} for ever"
    for key, request in world.requests.items():
        if request.state in ("CREATING", "ACCEPTED", "PROVISIONING", "SUSPENDING", "DELETING"):
            yield f"{key} is {request.state} for ever"
    for key, operation in world.operations.items():
        if operation.ended is None and not operation.endless:
            yield f"{key} ({operation.verb} of {operation.target}) is never done"
