"""The wanted state of hosts for the rest of the world, and the reports they send back."""

from collections.abc import Iterator

from tpuherd.catalogue import accelerators, generations
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.project_metadata import project_metadata
from tpuherd_sim.model.records import GuestAttribute, Node, Worker
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.host_repairs import HostReport, apply_host_report, store_guest_attribute
from tpuherd_sim.tpu.router import Route

EVENTS = ("up", "rebooted", "off", "failed")

#: States in which the machines of a node exist, though they may be off.
WITH_MACHINES = frozenset(
    {
        "CREATING", "READY", "RESTARTING", "REIMAGING", "REPAIRING", "STARTING", "STOPPING",
        "STOPPED", "DELETING", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN",
    }
)  # fmt: skip


def host_key(node: Node, worker: Worker) -> str:
    """Return a host's key, which is unique forever."""
    return f"{node.uid}-{worker.index}"


def find_worker(world: World, key: str) -> tuple[Node, Worker] | None:
    """Return the node and worker of a host's key while its node exists."""
    uid, _, index = key.partition("-")
    if not uid.isdecimal() or not index.isdecimal():
        return None
    node = world.nodes.get(world.places.get(int(uid), ""))
    if node is None or int(index) >= len(node.workers):
        return None
    worker = node.workers[int(index)]
    return (node, worker) if host_key(node, worker) == key else None


def host_views(world: World) -> dict[str, HostView]:
    """Return every host that should exist, on or off."""
    return {
        host_key(node, worker): worker_view(world, node, worker)
        for node in world.nodes.values()
        if node.state in WITH_MACHINES
        for worker in node.workers
    }


def host_view(world: World, key: str) -> HostView | None:
    """Return one host's wanted state, or None if it should not exist."""
    found = find_worker(world, key)
    if found is None or found[0].state not in WITH_MACHINES:
        return None
    return worker_view(world, *found)


def worker_view(world: World, node: Node, worker: Worker) -> HostView:
    accelerator = accelerators()[node.type]
    generation = generations()[accelerator.generation]
    return HostView(
        key=host_key(node, worker),
        zone=node.zone,
        node=node.id,
        worker=worker.index,
        name=worker.name,
        uid=worker.uid,
        image=node.runtime,
        accelerator=node.type,
        chips=accelerator.chips_per_host,
        device=generation.device,
        pci=generation.pci,
        segment=node.queued_resource or "" if node.multislice else str(node.uid),
        internal_ip=worker.internal_ip,
        external_ip=worker.external_ip,
        peers=find_peers(world, node),
        on=worker.on,
        boot=worker.boot,
        soft_off=worker.soft_off,
        restarting=worker.restarting,
        hung=worker.hung,
        network=worker.network,
        ssh=worker.ssh,
        disk_full=worker.disk_full,
        clock_skew_s=worker.clock_skew_s,
        startup_script=node.metadata.get("startup-script"),
        shutdown_script=node.metadata.get("shutdown-script"),
    )


def find_peers(world: World, node: Node) -> tuple[tuple[str, str], ...]:
    """Return names and addresses of all hosts of the node's slices; all its hosts share them."""
    if node.uid not in world.peers:
        world.peers[node.uid] = tuple(
            (one.name, one.internal_ip) for peer in slice_nodes(world, node) for one in peer.workers
        )
    return world.peers[node.uid]


def slice_nodes(world: World, node: Node) -> Iterator[Node]:
    """Yield the nodes of all slices of the node's multislice, or only the node."""
    if node.multislice is None:
        yield node
        return
    for other in world.nodes.values():
        if other.queued_resource == node.queued_resource and other.zone == node.zone:
            yield other


def login_keys(world: World, key: str) -> dict[str, tuple[str, ...]]:
    """Return who may log in with which keys: the project's `ssh-keys`, then the node's."""
    found = find_worker(world, key)
    if found is None:
        return {}
    node = found[0]
    own = node.metadata.get("ssh-keys", "")
    blocked = node.metadata.get("block-project-ssh-keys", "").upper() == "TRUE"
    shared = "" if blocked else project_metadata(world).get("ssh-keys", "")
    keys: dict[str, tuple[str, ...]] = {}
    for line in f"{shared}\n{own}".splitlines():
        user, colon, public = line.strip().partition(":")
        if colon and user and public:
            keys[user] = (*keys.get(user, ()), public.strip())
    return keys


# -- what running hosts report --------------------------------------------------------------------


def known_host(world: World, call: ApiCall) -> tuple[Node, Worker]:
    found = find_worker(world, call.path["key"])
    if found is None:
        raise ApiError(404, "NOT_FOUND", f"unknown host {call.path['key']}")
    return found


def report_host_event(world: World, call: ApiCall, now: float) -> Json:
    """Report that a host is up, rebooted from inside, was powered off from inside, or failed to
    boot.
    """
    node, worker = known_host(world, call)
    event, boot, why = (call.body.get(name) for name in ("event", "boot", "why"))
    if event not in EVENTS or type(boot) is not int or not isinstance(why, str | None):
        raise ApiError(400, "INVALID_ARGUMENT", f"a report needs the boot and one of {EVENTS}")
    apply_host_report(world, node, worker, HostReport(event=event, boot=boot, why=why or ""), now)
    return {}


def write_guest_attribute(world: World, call: ApiCall, now: float) -> Json:
    """Publish a guest attribute of a host, such as its SSH host key."""
    node, worker = known_host(world, call)
    fresh = GuestAttribute(
        namespace=call.path["namespace"],
        name=call.path["name"],
        value=str(call.body.get("value", "")),
    )
    store_guest_attribute(world, node, worker, fresh, now)
    return {}


ROUTES = (
    Route("POST", "/sim/v1/hosts/{key}:report", report_host_event),
    Route("PUT", "/sim/v1/hosts/{key}/guest-attributes/{namespace}/{name}", write_guest_attribute),
)
