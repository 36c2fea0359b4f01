"""Completes a requested node with the service's defaults."""

import re
from collections.abc import Mapping
from typing import Any

from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import default_account_email
from tpuherd_sim.tpu.names import region_of_zone

#: Default scopes of a TPU VM's service account.
SCOPES = tuple(
    f"https://www.googleapis.com/auth/{name}"
    for name in (
        "devstorage.read_write",
        "logging.write",
        "service.management",
        "servicecontrol",
        "cloud-platform",
        "pubsub",
    )
)
#: What the full URL of a resource of Compute has before its name.
COMPUTE = re.compile(r"https://(www|compute)\.googleapis\.com/compute/v1/")
#: Fields that a node shows under other names.
OWN = ("acceleratorType", "acceleratorConfig", "runtimeVersion", "health")
TIER_SCHEDULING: Mapping[str, dict[str, Any]] = {
    "spot": {"spot": True},
    "best-effort": {"spot": True},
    "guaranteed": {"reserved": True},
}


def complete_spec(
    world: World, zone: str, asked: Mapping[str, Any], *, tier: str = "on-demand"
) -> dict[str, Any]:
    """Return a node's spec with the service's additions: network, service account, tier of its
    request.
    """
    spec = {name: value for name, value in asked.items() if name not in OWN}
    if "networkConfigs" in spec:
        spec["networkConfigs"] = [
            complete_network(world, zone, one) for one in spec["networkConfigs"]
        ]
        spec["networkConfig"] = spec["networkConfigs"][0]
    else:
        # Without a network config a node gets external addresses; with one, it decides.
        given = spec.get("networkConfig", {"enableExternalIps": True})
        spec["networkConfig"] = complete_network(world, zone, given)
    account = spec.get("serviceAccount", {})
    number = world.settings.project_number
    spec["serviceAccount"] = {
        "email": account.get("email") or default_account_email(number),
        "scope": list(account.get("scope") or SCOPES),
    }
    scheduling = {**spec.get("schedulingConfig", {}), **TIER_SCHEDULING.get(tier, {})}
    if scheduling.get("provisioningModel") == "SPOT":
        scheduling["spot"] = True
    if scheduling.get("provisioningModel") == "RESERVATION_BOUND":
        scheduling["reserved"] = True
    spec["schedulingConfig"] = scheduling
    return spec


def complete_network(world: World, zone: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network config with the full names of its network and subnetwork."""
    network = COMPUTE.sub("", str(given.get("network") or "default"))
    if not network.startswith("projects/"):
        name = network.removeprefix("global/networks/")
        network = f"projects/{world.settings.project}/global/networks/{name}"
    subnetwork = COMPUTE.sub("", str(given.get("subnetwork") or network.rpartition("/")[2]))
    if not subnetwork.startswith(("projects/", "regions/")):
        subnetwork = f"regions/{region_of_zone(zone)}/subnetworks/{subnetwork}"
    if subnetwork.startswith("regions/"):
        subnetwork = f"{network.partition('/global/')[0]}/{subnetwork}"
    return {**given, "network": network, "subnetwork": subnetwork}
