"""Reads, creates, changes and deletes the firewall rules of a project."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuherd.clock import Clock
from tpuherd.cloud.compute_calls import list_compute_pages, wait_for_compute
from tpuherd.cloud.firewall_rules import NUMBERS, FirewallRule, Traffic
from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import Json, RestClient
from tpuherd.errors import NotFound
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")


async def list_firewalls(rest: RestClient, project: str, network: str) -> list[FirewallRule]:
    """Return the rules of one network, from all pages."""
    found: list[FirewallRule] = []
    async for content in list_compute_pages(rest, f"projects/{project}/global/firewalls"):
        page = parse_shape(content, reply_shapes.FirewallListReply)
        found += [parse_firewall(one) for one in page.items]
    return [one for one in found if one.network == network]


async def list_networks(rest: RestClient, project: str) -> Mapping[str, bool]:
    """Return the networks by name, and whether each has automatic subnetworks (10.128.0.0/9)."""
    found: dict[str, bool] = {}
    async for content in list_compute_pages(rest, f"projects/{project}/global/networks"):
        page = parse_shape(content, reply_shapes.NetworkListReply)
        found |= {one.name: one.auto_create_subnetworks for one in page.items}
    return found


async def get_firewall(rest: RestClient, project: str, name: str) -> FirewallRule | None:
    """Return the rule; None if it does not exist."""
    try:
        content = await rest.call_compute("GET", f"projects/{project}/global/firewalls/{name}")
    except NotFound:
        return None
    return parse_firewall(parse_shape(content, reply_shapes.ApiFirewall))


async def create_firewall(rest: RestClient, project: str, rule: FirewallRule, clock: Clock) -> None:
    """Create the rule and wait until it is in force. Raises CloudConflict if the name is taken."""
    body = {**changed_fields(rule), "name": rule.name, "direction": "INGRESS"}
    body |= {"network": f"global/networks/{rule.network}", "priority": rule.priority}
    path = f"projects/{project}/global/firewalls"
    await wait_for_compute(rest, project, await rest.call_compute("POST", path, body), clock)


async def change_firewall(rest: RestClient, project: str, rule: FirewallRule, clock: Clock) -> None:
    """Replace the sources, the traffic and the description of a rule."""
    path = f"projects/{project}/global/firewalls/{rule.name}"
    done = await rest.call_compute("PATCH", path, changed_fields(rule))
    await wait_for_compute(rest, project, done, clock)


async def delete_firewall(rest: RestClient, project: str, name: str, clock: Clock) -> None:
    """Delete the rule; fine if it does not exist."""
    try:
        done = await rest.call_compute("DELETE", f"projects/{project}/global/firewalls/{name}")
    except NotFound:
        return
    await wait_for_compute(rest, project, done, clock)


def changed_fields(rule: FirewallRule) -> Json:
    return {
        "description": rule.description,
        "sourceRanges": list(rule.sources),
        "allowed": [traffic_json(one) for one in rule.allowed],
    }


def traffic_json(traffic: Traffic) -> Json:
    content: Json = {"IPProtocol": traffic.protocol}
    if traffic.ports:
        content["ports"] = [
            str(low) if low == high else f"{low}-{high}" for low, high in traffic.ports
        ]
    return content


def parse_firewall(content: reply_shapes.ApiFirewall) -> FirewallRule:
    """Return a rule as we judge it; sources that we can't read make it partial."""
    sources = tuple(one for one in content.source_ranges if is_range(one))
    unclear = (
        len(sources) != len(content.source_ranges)
        or content.source_tags
        or content.source_service_accounts
        or content.target_tags
        or content.target_service_accounts
    )
    return FirewallRule(
        name=content.name,
        network=content.network.rpartition("/")[2],
        sources=sources,
        allowed=tuple(parse_traffic(one) for one in content.allowed),
        denied=tuple(parse_traffic(one) for one in content.denied),
        priority=content.priority,
        description=content.description,
        disabled=content.disabled,
        ingress=content.direction == "INGRESS",
        partial=bool(unclear),
    )


def is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def parse_traffic(content: reply_shapes.FirewallTraffic) -> Traffic:
    protocol = content.protocol.lower()
    ends = (port.partition("-") for port in content.ports)
    ports = tuple((int(first), int(last or first)) for first, _, last in ends)
    return Traffic(protocol=NUMBERS.get(protocol, protocol), ports=ports)
