"""VPC networks and their automatic subnetworks."""

from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.compute_operations import record_operation
from tpuherd_sim.google_apis.compute_zones import known_region
from tpuherd_sim.google_apis.global_resources import GlobalResources
from tpuherd_sim.google_apis.links import own_project_path, resource_url
from tpuherd_sim.google_apis.pagination import list_response
from tpuherd_sim.model.compute_errors import not_found_error
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


def get_subnetwork(world: World, call: ApiCall, now: float) -> Json:
    home, region, name = (
        own_project_path(world, call),
        known_region(world, call),
        call.path["subnetwork"],
    )
    network = world.services.networks.get(name)
    if network is None or not network.auto:
        raise not_found_error(f"{home}/regions/{region}/subnetworks/{name}")
    return subnetwork_json(world, network, region)


def list_subnetworks(world: World, call: ApiCall, now: float) -> Json:
    home, region = own_project_path(world, call), known_region(world, call)
    subnetworks = [
        subnetwork_json(world, network, region)
        for network in world.services.networks.values()
        if network.auto
    ]
    return list_response(
        "subnetworkList", f"{home}/regions/{region}/subnetworks", subnetworks, call
    )


ALL = "/compute/v1/projects/{project}/global/networks"
SUBNETWORKS = "/compute/v1/projects/{project}/regions/{region}/subnetworks"

ROUTES = (
    Route("GET", ALL, NETWORKS.answer_list),
    Route("POST", ALL, insert_network),
    Route("GET", f"{ALL}/{{network}}", NETWORKS.answer_get),
    Route("DELETE", f"{ALL}/{{network}}", delete_network),
    Route("GET", SUBNETWORKS, list_subnetworks),
    Route("GET", f"{SUBNETWORKS}/{{subnetwork}}", get_subnetwork),
)
