"""The firewall rules of Compute networks: checked, kept and shown, obeyed by nobody here."""

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from tpuherd_sim.google_apis.compute_operations import begin
from tpuherd_sim.google_apis.links import link, new_name, project_of
from tpuherd_sim.google_apis.pagination import listing
from tpuherd_sim.model.compute_errors import invalid, missing, taken
from tpuherd_sim.model.compute_state import Firewall, number, stamp
from tpuherd_sim.model.http_types import Call, Json, Refused
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
ANYWHERE = "0.0.0.0/0"


# -- what a body may say --------------------------------------------------------------------------


def is_text(value: Any) -> bool:
    """Text of a size that Compute takes."""
    return isinstance(value, str) and len(value) <= 2048


def is_flag(value: Any) -> bool:
    """True or false."""
    return isinstance(value, bool)


def is_priority(value: Any) -> bool:
    """0 (first) to 65535."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535


def is_direction(value: Any) -> bool:
    """Into the network or out of it."""
    return value in ("INGRESS", "EGRESS")


def is_log(value: Any) -> bool:
    """Whether hits are logged."""
    return isinstance(value, dict) and is_flag(value.get("enable", False))


def are_names(value: Any) -> bool:
    """Tags or service accounts."""
    return isinstance(value, list) and all(is_text(one) and one for one in value)


def are_ranges(value: Any) -> bool:
    """Addresses such as 10.128.0.0/9."""
    return isinstance(value, list) and all(is_range(one) for one in value)


def is_range(value: Any) -> bool:
    """One range of addresses."""
    if not isinstance(value, str):
        return False
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return True


def are_protocols(value: Any) -> bool:
    """Protocols with their ports."""
    return isinstance(value, list) and all(is_protocol(one) for one in value)


def is_protocol(value: Any) -> bool:
    """A protocol, all of it or some ports."""
    if not isinstance(value, dict) or not is_text(value.get("IPProtocol")):
        return False
    ports = value.get("ports", [])
    return (
        bool(value["IPProtocol"])
        and isinstance(ports, list)
        and all(is_port(port) for port in ports)
    )


def is_port(value: Any) -> bool:
    """22 or 60000-61000."""
    found = PORTS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    first, last = int(found[1]), int(found[2] or found[1])
    return first <= last <= 65535


FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "description": is_text,
    "priority": is_priority,
    "sourceRanges": are_ranges,
    "destinationRanges": are_ranges,
    "sourceTags": are_names,
    "targetTags": are_names,
    "sourceServiceAccounts": are_names,
    "targetServiceAccounts": are_names,
    "allowed": are_protocols,
    "denied": are_protocols,
    "direction": is_direction,
    "logConfig": is_log,
    "disabled": is_flag,
}


def complete(given: Mapping[str, Any]) -> Json:
    """A rule's fields checked, with what Compute adds to them."""
    spec = {field: given[field] for field in FIELDS if given.get(field) is not None}
    for field, value in spec.items():
        if not FIELDS[field](value):
            raise invalid(f"resource.{field}", value, "It is not of the form that it must have.")
    if bool(spec.get("allowed")) == bool(spec.get("denied")):
        raise Refused(
            400,
            "INVALID_ARGUMENT",
            "A firewall rule must have either 'allowed' or 'denied', and not both.",
        )
    spec = {"priority": 1000, "direction": "INGRESS", "disabled": False, **spec}
    spec.setdefault("logConfig", {"enable": False})
    sources = ("sourceRanges", "sourceTags", "sourceServiceAccounts")
    if spec["direction"] == "INGRESS" and not any(spec.get(name) for name in sources):
        spec["sourceRanges"] = [ANYWHERE]
    if spec["direction"] == "EGRESS":
        if any(spec.get(name) for name in sources):
            raise Refused(
                400, "INVALID_ARGUMENT", "Source fields are not for rules of direction EGRESS."
            )
        if not spec.get("destinationRanges"):
            spec["destinationRanges"] = [ANYWHERE]
    return {field: value for field, value in spec.items() if value not in ([], "")}


def network_of(world: World, given: Mapping[str, Any], default: str) -> str:
    """The name of the network that a rule is for: named, or linked in one of three ways."""
    network = given.get("network")
    if network is None:
        return default
    name = network.rsplit("/", 1)[-1] if isinstance(network, str) else ""
    if name not in world.services.networks:
        raise invalid("resource.network", network, "The referenced network was not found.")
    return name


# -- the calls ------------------------------------------------------------------------------------


def render(world: World, rule: Firewall) -> Json:
    """A rule as Compute shows it."""
    return {
        "kind": "compute#firewall",
        "id": str(rule.id),
        "creationTimestamp": stamp(rule.created),
        "name": rule.name,
        "network": link(world, f"global/networks/{rule.network}"),
        **rule.spec,
        "selfLink": link(world, f"global/firewalls/{rule.name}"),
    }


def find(world: World, call: Call) -> Firewall:
    """The rule of the path."""
    home, name = project_of(world, call), call.path["firewall"]
    rule = world.services.firewalls.get(name)
    if rule is None:
        raise missing(f"{home}/global/firewalls/{name}")
    return rule


def get_firewall(world: World, call: Call, now: float) -> Json:
    """One rule."""
    return render(world, find(world, call))


def list_firewalls(world: World, call: Call, now: float) -> Json:
    """Every rule."""
    home = project_of(world, call)
    rules = [render(world, one) for one in world.services.firewalls.values()]
    return listing("firewallList", f"{home}/global/firewalls", rules, call)


def effective_firewalls(world: World, call: Call, now: float) -> Json:
    """The rules of one network."""
    home, name = project_of(world, call), call.path["network"]
    if name not in world.services.networks:
        raise missing(f"{home}/global/networks/{name}")
    rules = [one for one in world.services.firewalls.values() if one.network == name]
    return {"firewalls": [render(world, one) for one in rules]} if rules else {}


def insert_firewall(world: World, call: Call, now: float) -> Json:
    """A new rule."""
    home, name = project_of(world, call), new_name(call.body)
    network, spec = network_of(world, call.body, "default"), complete(call.body)
    if name in world.services.firewalls:
        raise taken(f"{home}/global/firewalls/{name}")
    if network not in world.services.networks:
        raise invalid("resource.network", network, "The referenced network was not found.")
    rule = Firewall(
        name=name, id=number(world.services.dice), created=now, network=network, spec=spec
    )
    return put(world, now, "insert", rule)


def patch_firewall(world: World, call: Call, now: float) -> Json:
    """Change the fields that are named."""
    rule = find(world, call)
    merged = {**rule.spec, **{field: call.body[field] for field in FIELDS if field in call.body}}
    return put(world, now, "patch", altered(world, call, rule, merged))


def update_firewall(world: World, call: Call, now: float) -> Json:
    """Replace all fields."""
    return put(world, now, "update", altered(world, call, find(world, call), call.body))


def altered(world: World, call: Call, rule: Firewall, given: Mapping[str, Any]) -> Firewall:
    """The rule with other fields; its name and network stay."""
    if network_of(world, call.body, rule.network) != rule.network:
        raise invalid("resource.network", call.body["network"], "The network can't be changed.")
    return dataclasses.replace(rule, spec=complete(given))


def put(world: World, now: float, verb: str, rule: Firewall) -> Json:
    """Keep a rule."""
    world.services.firewalls[rule.name] = rule
    return begin(world, now, verb, f"global/firewalls/{rule.name}", rule.id)


def delete_firewall(world: World, call: Call, now: float) -> Json:
    """Away with a rule."""
    rule = find(world, call)
    del world.services.firewalls[rule.name]
    return begin(world, now, "delete", f"global/firewalls/{rule.name}", rule.id)


ALL = "/compute/v1/projects/{project}/global/firewalls"
ONE = f"{ALL}/{{firewall}}"

ROUTES = (
    Route("GET", ALL, list_firewalls),
    Route("POST", ALL, insert_firewall),
    Route("GET", ONE, get_firewall),
    Route("PATCH", ONE, patch_firewall),
    Route("PUT", ONE, update_firewall),
    Route("DELETE", ONE, delete_firewall),
    Route(
        "GET",
        "/compute/v1/projects/{project}/global/networks/{network}/getEffectiveFirewalls",
        effective_firewalls,
    ),
)
