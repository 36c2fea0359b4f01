"""The request bodies of nodes.create and queuedResources.create."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuherd.lazy_modules import import_lazily
from tpuherd.model.node_spec import CARD, NodeSpec
from tpuherd.model.slots_and_plan import Ask

if TYPE_CHECKING:
    import msgspec

    from tpuherd.cloud import reply_shapes
else:
    msgspec = import_lazily("msgspec")
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

Json = dict[str, Any]
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
#: The fields for each tier: of a node, and of a queued resource.
NODE_TIERS: Mapping[str, Json] = {
    "spot": {"schedulingConfig": {"spot": True}},
    "preemptible": {"schedulingConfig": {"preemptible": True}},
    "on-demand": {},
    "reserved": {"schedulingConfig": {"reserved": True}},
}
REQUEST_TIERS: Mapping[str, Json] = {
    "spot": {"spot": {}},
    "preemptible": {"spot": {}},
    "on-demand": {},
    "reserved": {"guaranteed": {}},
}


def node_body(ask: Ask, order: NodeSpec) -> Json:
    """A node of this bid, without empty fields."""
    network = {
        "network": order.network,
        "subnetwork": order.subnetwork,
        "enableExternalIps": order.external_ips,
    }
    account = {"email": order.service_account, "scope": [SCOPE]} if order.service_account else {}
    mode = "READ_WRITE" if ask.offer.hosts == 1 and ask.nodes == 1 else "READ_ONLY"
    body: Json = {
        "acceleratorType": ask.offer.type,
        "runtimeVersion": ask.offer.runtime,
        "description": order.description[:512],
        "networkConfig": {key: word for key, word in network.items() if word != ""},
        "labels": dict(order.labels),
        "metadata": {**order.metadata, CARD: card_text(order.card)},
        "tags": list(order.tags),
        "serviceAccount": account,
        "dataDisks": [{"sourceDisk": disk, "mode": mode} for disk in order.disks],
    }
    return {key: word for key, word in body.items() if word}


def create_node_body(ask: Ask, order: NodeSpec) -> Json:
    """The body of nodes.create."""
    return {**node_body(ask, order), **NODE_TIERS[ask.offer.tier]}


def queued_resource_body(ask: Ask, order: NodeSpec, project: str) -> Json:
    """The body of queuedResources.create: never expires; for one node or a multislice run."""
    zone = f"projects/{project}/locations/{ask.offer.zone}"
    spec: Json = {"parent": zone, "node": node_body(ask, order)}
    name = order.node_name or ask.bid
    if ask.nodes > 1:
        spec["multisliceParams"] = {"nodeCount": ask.nodes, "nodeIdPrefix": name}
    else:
        spec["nodeId"] = name
    body: Json = {"tpu": {"nodeSpec": [spec]}, **REQUEST_TIERS[ask.offer.tier]}
    if ask.offer.tier == "reserved":
        body["reservationName"] = f"{zone}/reservations/{order.reservation or '-'}"
    return body


def card_text(card: Mapping[str, Any]) -> str:
    """The card as it is written into the metadata."""
    return json.dumps(card, separators=(",", ":"), sort_keys=True)


def read_card(metadata: Mapping[str, str]) -> Mapping[str, Any]:
    """The card of a node or request; empty if it is missing or malformed, as anyone who can write
    metadata can change it.
    """
    try:
        card: Mapping[str, Any] = msgspec.json.decode(metadata.get(CARD) or "{}")
        msgspec.convert(card, reply_shapes.BidCard)
    except (ValueError, RecursionError):
        return {}
    return card
