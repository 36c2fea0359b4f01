"""VPC networks and their automatic subnetworks."""

from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.compute_operations import record_operation
from tpuherd_sim.google_apis.global_resources import GlobalResources
from tpuherd_sim.google_apis.links import own_project_path, resource_url
from tpuherd_sim.model.compute_state import Network, format_compute_time, new_numeric_id
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route


def network_json(world: World, network: Network, now: float) -> Json:
    answer: Json = {
        "kind": "compute#network",
        "id": str(network.id),
        "creationTimestamp": format_compute_time(network.created),
        "name": network.name,
        "description": network.description,
        "selfLink": resource_url(world, f"global/networks/{network.name}"),
        "autoCreateSubnetworks": network.auto,
        "routingConfig": {"routingMode": "REGIONAL"},
        "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
    }
    if network.auto:
        answer["subnetworks"] = [
            resource_url(world, f"regions/{region}/subnetworks/{network.name}")
            for region in regions()
        ]
    return answer


NETWORKS = GlobalResources("network", lambda world: world.services.networks, network_json)


def insert_network(world: World, call: ApiCall, now: float) -> Json:
    name = NETWORKS.take_new_name(world, call)
    network = Network(
        name=name,
        id=new_numeric_id(world.services.dice),
        created=now,
        auto=call.body.get("autoCreateSubnetworks") is not False,
        description=str(call.body.get("description") or ""),
    )
    world.services.networks[name] = network
    return record_operation(world, now, "insert", f"global/networks/{name}", network.id)


def delete_network(world: World, call: ApiCall, now: float) -> Json:
    """Delete a network that no firewall rule uses."""
    home, network = own_project_path(world, call), NETWORKS.find(world, call)
    path = f"global/networks/{network.name}"
    for rule in world.services.firewalls.values():
        if rule.network == network.name:
            raise ApiError(
                400,
                "FAILED_PRECONDITION",
                f"The network resource '{home}/{path}' is already being used by "
                f"'{home}/global/firewalls/{rule.name}'",
            )
    del world.services.networks[network.name]
    return record_operation(world, now, "delete", path, network.id)


# -- subnetworks ----------------------------------------------------------------------------------


def subnetwork_json(world: World, network: Network, region: str) -> Json:
    """Return the subnetwork of an auto-mode network in a region."""
    place = list(regions()).index(region)
    return {
        "kind": "compute#subnetwork",
        "id": str(network.id + 1 + place),
        "creationTimestamp": format_compute_time(network.created),
        "name": network.name,
        "network": resource_url(world, f"global/networks/{network.name}"),
        "ipCidrRange": f"10.{128 + 2 * place}.0.0/20",
        "gatewayAddress": f"10.{128 + 2 * place}.0.1",
        "region": resource_url(world, f"regions/{region}"),
        "selfLink": resource_url(world, f"regions/{region}/subnetworks/{network.name}"),
        "privateIpGoogleAccess": True,
        "purpose": "PRIVATE",
        "stackType": "IPV4_ONLY",
    }


def all_subnetworks(world: World, now: float) -> list[Json]:
    """Return the subnetworks of all networks in automatic mode."""
    auto = [network for network in world.services.networks.values() if network.auto]
    return [subnetwork_json(world, network, region) for network in auto for region in regions()]


ALL = "/compute/v1/projects/{project}/global/networks"

ROUTES = (Route("POST", ALL, insert_network), Route("DELETE", f"{ALL}/{{network}}", delete_network))
