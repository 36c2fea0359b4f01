"""Firewall rules of Compute networks: validated and stored, but not enforced."""

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from tpuherd_sim.google_apis.compute_operations import record_operation
from tpuherd_sim.google_apis.global_resources import GlobalResources
from tpuherd_sim.google_apis.links import resource_url
from tpuherd_sim.google_apis.networks import NETWORKS
from tpuherd_sim.model.compute_errors import invalid_value_error
from tpuherd_sim.model.compute_state import Firewall, format_compute_time, new_numeric_id
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
ANYWHERE = "0.0.0.0/0"


# -- what a body may contain ----------------------------------------------------------------------


def is_text(value: Any) -> bool:
    """Whether the value is a string within Compute's size limit."""
    return isinstance(value, str) and len(value) <= 2048


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_priority(value: Any) -> bool:
    """Whether the value is a priority: 0 (first) to 65535."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535


def is_direction(value: Any) -> bool:
    return value in ("INGRESS", "EGRESS")


def is_log_config(value: Any) -> bool:
    return isinstance(value, dict) and is_flag(value.get("enable", False))


def is_name_list(value: Any) -> bool:
    """Whether the value is a list of tags or service accounts."""
    return isinstance(value, list) and all(is_text(one) and one for one in value)


def is_range_list(value: Any) -> bool:
    """Whether the value is a list of ranges such as 10.128.0.0/9."""
    return isinstance(value, list) and all(is_range(one) for one in value)


def is_range(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return True


def is_protocol_list(value: Any) -> bool:
    return isinstance(value, list) and all(is_protocol(one) for one in value)


def is_protocol(value: Any) -> bool:
    """Whether the value is a protocol, with or without ports."""
    if not isinstance(value, dict) or not is_text(value.get("IPProtocol")):
        return False
    ports = value.get("ports", [])
    return (
        bool(value["IPProtocol"])
        and isinstance(ports, list)
        and all(is_port(port) for port in ports)
    )


def is_port(value: Any) -> bool:
    """Whether the value is a port or a range: 22 or 60000-61000."""
    found = PORTS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    first, last = int(found[1]), int(found[2] or found[1])
    return first <= last <= 65535


FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "description": is_text,
    "priority": is_priority,
    "sourceRanges": is_range_list,
    "destinationRanges": is_range_list,
    "sourceTags": is_name_list,
    "targetTags": is_name_list,
    "sourceServiceAccounts": is_name_list,
    "targetServiceAccounts": is_name_list,
    "allowed": is_protocol_list,
    "denied": is_protocol_list,
    "direction": is_direction,
    "logConfig": is_log_config,
    "disabled": is_flag,
}


def complete_rule(given: Mapping[str, Any]) -> Json:
    """Validate a rule's fields and add Compute's defaults."""
    spec = {field: given[field] for field in FIELDS if given.get(field) is not None}
    for field, value in spec.items():
        if not FIELDS[field](value):
            raise invalid_value_error(
                f"resource.{field}", value, "It is not of the form that it must have."
            )
    if bool(spec.get("allowed")) == bool(spec.get("denied")):
        raise ApiError(
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
            raise ApiError(
                400, "INVALID_ARGUMENT", "Source fields are not for rules of direction EGRESS."
            )
        if not spec.get("destinationRanges"):
            spec["destinationRanges"] = [ANYWHERE]
    return {field: value for field, value in spec.items() if value not in ([], "")}


def rule_network_name(world: World, given: Mapping[str, Any], default: str) -> str:
    """Return the network name of a rule; it may be a name or one of three kinds of links."""
    network = given.get("network")
    if network is None:
        return default
    name = network.rsplit("/", 1)[-1] if isinstance(network, str) else ""
    if name not in world.services.networks:
        raise invalid_value_error(
            "resource.network", network, "The referenced network was not found."
        )
    return name


# -- calls ----------------------------------------------------------------------------------------


def firewall_json(world: World, rule: Firewall, now: float) -> Json:
    return {
        "kind": "compute#firewall",
        "id": str(rule.id),
        "creationTimestamp": format_compute_time(rule.created),
        "name": rule.name,
        "network": resource_url(world, f"global/networks/{rule.network}"),
        **rule.spec,
        "selfLink": resource_url(world, f"global/firewalls/{rule.name}"),
    }


FIREWALLS = GlobalResources("firewall", lambda world: world.services.firewalls, firewall_json)


def list_effective_firewalls(world: World, call: ApiCall, now: float) -> Json:
    """List the rules of one network."""
    name = NETWORKS.find(world, call).name
    rules = [one for one in world.services.firewalls.values() if one.network == name]
    return {"firewalls": [firewall_json(world, one, now) for one in rules]} if rules else {}


def insert_firewall(world: World, call: ApiCall, now: float) -> Json:
    name = FIREWALLS.take_new_name(world, call)
    network, spec = rule_network_name(world, call.body, "default"), complete_rule(call.body)
    if network not in world.services.networks:
        raise invalid_value_error(
            "resource.network", network, "The referenced network was not found."
        )
    rule = Firewall(
        name=name, id=new_numeric_id(world.services.dice), created=now, network=network, spec=spec
    )
    return store_firewall(world, now, "insert", rule)


def patch_firewall(world: World, call: ApiCall, now: float) -> Json:
    """Change only the given fields."""
    rule = FIREWALLS.find(world, call)
    merged = {**rule.spec, **{field: call.body[field] for field in FIELDS if field in call.body}}
    return store_firewall(world, now, "patch", replace_rule_fields(world, call, rule, merged))


def update_firewall(world: World, call: ApiCall, now: float) -> Json:
    """Replace all fields."""
    return store_firewall(
        world,
        now,
        "update",
        replace_rule_fields(world, call, FIREWALLS.find(world, call), call.body),
    )


def replace_rule_fields(
    world: World, call: ApiCall, rule: Firewall, given: Mapping[str, Any]
) -> Firewall:
    """Return the rule with new fields; its name and network stay."""
    if rule_network_name(world, call.body, rule.network) != rule.network:
        raise invalid_value_error(
            "resource.network", call.body["network"], "The network can't be changed."
        )
    return dataclasses.replace(rule, spec=complete_rule(given))


def store_firewall(world: World, now: float, verb: str, rule: Firewall) -> Json:
    world.services.firewalls[rule.name] = rule
    return record_operation(world, now, verb, f"global/firewalls/{rule.name}", rule.id)


def delete_firewall(world: World, call: ApiCall, now: float) -> Json:
    rule = FIREWALLS.find(world, call)
    del world.services.firewalls[rule.name]
    return record_operation(world, now, "delete", f"global/firewalls/{rule.name}", rule.id)


ALL = "/compute/v1/projects/{project}/global/firewalls"
ONE = f"{ALL}/{{firewall}}"

ROUTES = (
    Route("POST", ALL, insert_firewall),
    Route("PATCH", ONE, patch_firewall),
    Route("PUT", ONE, update_firewall),
    Route("DELETE", ONE, delete_firewall),
    Route(
        "GET",
        "/compute/v1/projects/{project}/global/networks/{network}/getEffectiveFirewalls",
        list_effective_firewalls,
    ),
)
