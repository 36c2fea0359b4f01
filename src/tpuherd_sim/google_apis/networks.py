"""VPC networks and the subnetworks that come with them."""

from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.compute_operations import begin
from tpuherd_sim.google_apis.compute_zones import known_region
from tpuherd_sim.google_apis.links import link, new_name, project_of
from tpuherd_sim.google_apis.pagination import listing
from tpuherd_sim.model.compute_errors import missing, taken
from tpuherd_sim.model.compute_state import Network, number, stamp
from tpuherd_sim.model.http_types import Call, Json, Refused
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route


def render(world: World, network: Network) -> Json:
    """A network as Compute shows it."""
    answer: Json = {
        "kind": "compute#network",
        "id": str(network.id),
        "creationTimestamp": stamp(network.created),
        "name": network.name,
        "description": network.description,
        "selfLink": link(world, f"global/networks/{network.name}"),
        "autoCreateSubnetworks": network.auto,
        "routingConfig": {"routingMode": "REGIONAL"},
        "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
    }
    if network.auto:
        answer["subnetworks"] = [
            link(world, f"regions/{region}/subnetworks/{network.name}") for region in regions()
        ]
    return answer


def find(world: World, call: Call) -> Network:
    """The network of the path."""
    home, name = project_of(world, call), call.path["network"]
    network = world.services.networks.get(name)
    if network is None:
        raise missing(f"{home}/global/networks/{name}")
    return network


def get_network(world: World, call: Call, now: float) -> Json:
    """One network."""
    return render(world, find(world, call))


def list_networks(world: World, call: Call, now: float) -> Json:
    """Every network."""
    home = project_of(world, call)
    networks = [render(world, one) for one in world.services.networks.values()]
    return listing("networkList", f"{home}/global/networks", networks, call)


def insert_network(world: World, call: Call, now: float) -> Json:
    """A new network."""
    home, name = project_of(world, call), new_name(call.body)
    if name in world.services.networks:
        raise taken(f"{home}/global/networks/{name}")
    network = Network(
        name=name,
        id=number(world.services.dice),
        created=now,
        auto=call.body.get("autoCreateSubnetworks") is not False,
        description=str(call.body.get("description") or ""),
    )
    world.services.networks[name] = network
    return begin(world, now, "insert", f"global/networks/{name}", network.id)


def delete_network(world: World, call: Call, now: float) -> Json:
    """Away with a network that no rule needs."""
    home, network = project_of(world, call), find(world, call)
    path = f"global/networks/{network.name}"
    for rule in world.services.firewalls.values():
        if rule.network == network.name:
            raise Refused(
                400,
                "FAILED_PRECONDITION",
                f"The network resource '{home}/{path}' is already being used by "
                f"'{home}/global/firewalls/{rule.name}'",
            )
    del world.services.networks[network.name]
    return begin(world, now, "delete", path, network.id)


# -- subnetworks ----------------------------------------------------------------------------------


def render_subnetwork(world: World, network: Network, region: str) -> Json:
    """The subnetwork that an auto-mode network has in a region."""
    place = list(regions()).index(region)
    return {
        "kind": "compute#subnetwork",
        "id": str(network.id + 1 + place),
        "creationTimestamp": stamp(network.created),
        "name": network.name,
        "network": link(world, f"global/networks/{network.name}"),
        "ipCidrRange": f"10.{128 + 2 * place}.0.0/20",
        "gatewayAddress": f"10.{128 + 2 * place}.0.1",
        "region": link(world, f"regions/{region}"),
        "selfLink": link(world, f"regions/{region}/subnetworks/{network.name}"),
        "privateIpGoogleAccess": True,
        "purpose": "PRIVATE",
        "stackType": "IPV4_ONLY",
    }


def get_subnetwork(world: World, call: Call, now: float) -> Json:
    """One subnetwork."""
    home, region, name = project_of(world, call), known_region(world, call), call.path["subnetwork"]
    network = world.services.networks.get(name)
    if network is None or not network.auto:
        raise missing(f"{home}/regions/{region}/subnetworks/{name}")
    return render_subnetwork(world, network, region)


def list_subnetworks(world: World, call: Call, now: float) -> Json:
    """The subnetworks of a region."""
    home, region = project_of(world, call), known_region(world, call)
    subnetworks = [
        render_subnetwork(world, network, region)
        for network in world.services.networks.values()
        if network.auto
    ]
    return listing("subnetworkList", f"{home}/regions/{region}/subnetworks", subnetworks, call)


NETWORKS = "/compute/v1/projects/{project}/global/networks"
SUBNETWORKS = "/compute/v1/projects/{project}/regions/{region}/subnetworks"

ROUTES = (
    Route("GET", NETWORKS, list_networks),
    Route("POST", NETWORKS, insert_network),
    Route("GET", f"{NETWORKS}/{{network}}", get_network),
    Route("DELETE", f"{NETWORKS}/{{network}}", delete_network),
    Route("GET", SUBNETWORKS, list_subnetworks),
    Route("GET", f"{SUBNETWORKS}/{{subnetwork}}", get_subnetwork),
)
