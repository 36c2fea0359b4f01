"""The tree under /computeMetadata/v1/ of a host's metadata server."""

from typing import Any

from tpuherd.catalogue import Accelerator, accelerators, generations
from tpuherd_sim.model.project_metadata import project_metadata
from tpuherd_sim.model.records import Multislice, Node, UpcomingMaintenance, Worker
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings, default_account_email
from tpuherd_sim.tpu.defaults import SCOPES
from tpuherd_sim.tpu.host_reports import find_worker, slice_nodes
from tpuherd_sim.tpu.timestamps import format_timestamp

TOKEN_LIFE_S = 3599
#: A real server's answer if no maintenance was ever announced.
NO_MAINTENANCE = {"error": "no notifications have been received yet, try again later"}
#: Settings of the TPU runtime that a real tpu-env shows and that have no effect here.
QUIET = (
    "AGENT_BOOTSTRAP_IMAGE", "COLLECTD_DOCKER_URL", "FLUENTD_DOCKER_URL",
    "HEALTH_AGENT_DOCKER_URL", "INJECT_SLICE_BUILDER_FAULT", "INTERNAL", "MEMCACHED_DOCKER_URL",
    "MONITORING_AGENT_DOCKER_URL", "RUNTIME_MONITOR_DOCKER_URL",
    "RUNTIME_VERSION_CHANGER_DOCKER_URL", "VBARCONTROL_AGENT_DOCKER_URL",
)  # fmt: skip


def metadata_tree(world: World, key: str, now: float) -> dict[str, Any]:
    """Return the whole tree of one host; empty if it does not exist."""
    found = find_worker(world, key)
    if found is None:
        return {}
    node, worker = found
    return {
        "instance": instance_tree(world, node, worker, now),
        "project": {
            "project-id": world.settings.project,
            "numeric-project-id": world.settings.project_number,
            "attributes": project_metadata(world),
        },
        "universe": {"universe-domain": "googleapis.com"},
    }


def instance_tree(world: World, node: Node, worker: Worker, now: float) -> dict[str, Any]:
    number = world.settings.project_number
    accelerator = accelerators()[node.type]
    machine = generations()[accelerator.generation].machine_types.get(accelerator.chips_per_host)
    guest: dict[str, dict[str, str]] = {}
    for one in worker.guest:
        guest.setdefault(one.namespace, {})[one.name] = one.value
    event = (
        worker.maintenance_event if worker.maintenance_event != "NONE" else node.maintenance_event
    )
    return {
        "attributes": instance_attributes(world, node, worker),
        "name": worker.name,
        "hostname": f"{worker.name}.{node.zone}.c.{world.settings.project}.internal",
        "id": worker.uid,
        "zone": f"projects/{number}/zones/{node.zone}",
        "machine-type": f"projects/{number}/machineTypes/{machine or 'n1-standard-96'}",
        "cpu-platform": "Unknown CPU Platform",
        "image": f"projects/cloud-tpu-vm-images/global/images/{node.runtime}",
        "description": "",
        "tags": list(node.spec.get("tags", ())),
        "preempted": format_flag(node.preempted),
        "maintenance-event": event,
        "upcoming-maintenance": upcoming_maintenance(node.upcoming)
        if node.upcoming
        else NO_MAINTENANCE,
        "scheduling": {
            "preemptible": format_flag(node.is_spot),
            "automatic-restart": "FALSE",
            "on-host-maintenance": "TERMINATE",
        },
        "network-interfaces": {"0": network_interface(world, node, worker)},
        "service-accounts": service_accounts(world.settings, node, now),
        "guest-attributes": guest,
        "disks": {"0": {"device-name": "persistent-disk-0", "index": 0, "mode": "READ_WRITE"}},
    }


def instance_attributes(world: World, node: Node, worker: Worker) -> dict[str, str]:
    """Return the user's metadata and the TPU service's additions."""
    number = world.settings.project_number
    # A real server knows a worker's name and number only once the whole node exists.
    known = node.state == "READY"
    endpoints = ",".join(
        f"{one.name}:{one.uid}:{one.internal_ip}" if known else f"unknown:unknown:{one.internal_ip}"
        for one in node.workers
    )
    added = {
        "accelerator-type": node.type,
        "agent-worker-number": str(worker.index),
        "instance-id": node.id,
        "tpu-env": tpu_env_text(world, node, worker),
        "worker-id": str(worker.index),
        "worker-network-endpoints": endpoints,
    }
    if node.queued_resource:
        added["queued-resource-name"] = (
            f"projects/{number}/locations/{node.zone}/queuedResources/{node.queued_resource}"
        )
    return {**node.metadata, **added}


def tpu_env_text(world: World, node: Node, worker: Worker) -> str:
    """Return the attribute `tpu-env`: lines of the form KEY: 'value'."""
    accelerator = accelerators()[node.type]
    values = {
        **dict.fromkeys(QUIET, ""),
        "ACCELERATOR_TYPE": node.type,
        "ALT": "false",
        "CHIPS_PER_HOST_BOUNDS": accelerator.chips_per_host_bounds,
        "CONSUMER_PROJECT_ID": world.settings.project,
        "CONSUMER_PROJECT_NUMBER": str(world.settings.project_number),
        "ENABLE_ICI_RESILIENCY": "false",
        "HOST_BOUNDS": accelerator.host_bounds,
        "INFERENCE_MODE": "false",
        "MAINTENANCE_ACTION_FLAG": "unhealthy-maintenance",
        "NODE_ID": node.id,
        "PREEMPTIBLE": "true" if node.is_spot else "false",
        "RUNTIME_VERSION": node.runtime,
        "SERVICE_NAME": "tpu.googleapis.com",
        "SOURCE": "TFRC",
        "TOPOLOGY": accelerator.topology,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": accelerator.chips_per_host_bounds,
        "TPU_PROCESS_BOUNDS": accelerator.host_bounds,
        "TPU_RUNTIME_METRICS_PORTS": metrics_ports(accelerator),
        "TPU_TOPOLOGY_ALT": "false",
        "TPU_TOPOLOGY_WRAP": torus_wrap(accelerator),
        "TYPE": accelerator.enum or "",
        "UID": str(node.uid),
        "WORKER_ID": str(worker.index),
        "WRAP": torus_wrap(accelerator),
        "ZONE": node.zone,
    }
    if node.multislice:
        values |= megascale_variables(world, node, node.multislice)
    return "".join(f"{name}: '{value}'\n" for name, value in sorted(values.items()))


def megascale_variables(world: World, node: Node, place: Multislice) -> dict[str, str]:
    """Return the variables by which the slices of a multislice find each other."""
    first = min(
        slice_nodes(world, node), key=lambda one: one.multislice.slice if one.multislice else 0
    )
    coordinator = first.workers[0].internal_ip if first.workers else place.coordinator
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator,
        "MEGASCALE_NUM_SLICES": str(place.slices),
        "MEGASCALE_SLICE_ID": str(place.slice),
    }


def metrics_ports(accelerator: Accelerator) -> str:
    """Return the ports of the runtime's metrics: one for each process that could own a chip."""
    return ",".join(str(8431 + chip) for chip in range(accelerator.chips_per_host))


def torus_wrap(accelerator: Accelerator) -> str:
    """Return which sides of the torus wrap around: in 3D those that are a multiple of
    four chips.
    """
    sides = [int(side) for side in accelerator.topology.split("x")]
    if len(sides) == 2:
        return "false,false,false"
    closed = all(side % 4 == 0 for side in sides)
    return ",".join("true" if closed else "false" for _ in range(3))


def network_interface(world: World, node: Node, worker: Worker) -> dict[str, Any]:
    network = node.spec.get("networkConfig", {}).get("network") or "default"
    path = f"projects/{world.settings.project_number}/networks/{network.rsplit('/', 1)[-1]}"
    access = {"external-ip": worker.external_ip or "", "type": "ONE_TO_ONE_NAT"}
    return {
        "ip": worker.internal_ip,
        "mac": "42:01:" + ":".join(f"{int(part):02x}" for part in worker.internal_ip.split(".")),
        "mtu": "8896",
        "network": path,
        "access-configs": {"0": access} if worker.external_ip else {},
    }


def service_accounts(settings: Settings, node: Node, now: float) -> dict[str, Any]:
    """Return the VM's service accounts; their tokens are valid only in this world."""
    account = node.spec.get("serviceAccount", {})
    email = account.get("email") or default_account_email(settings.project_number)
    entry = {
        "aliases": ["default"],
        "email": email,
        "scopes": list(account.get("scope") or SCOPES),
        "token": {
            "access_token": f"world.{node.uid}.{int(now) // TOKEN_LIFE_S}",
            "expires_in": TOKEN_LIFE_S - int(now) % TOKEN_LIFE_S,
            "token_type": "Bearer",
        },
    }
    return {"default": entry, email: entry}


def upcoming_maintenance(event: UpcomingMaintenance) -> dict[str, str]:
    return {
        "type": event.type,
        "can_reschedule": format_flag(event.can_reschedule),
        "window_start_time": format_timestamp(event.window_start),
        "window_end_time": format_timestamp(event.window_end),
        "latest_window_start_time": format_timestamp(event.latest_window_start),
        "maintenance_status": event.status,
    }


def format_flag(flag: bool) -> str:
    return "TRUE" if flag else "FALSE"
