"""The cloud's JSON as nouns of ours: its fields are read here; bodies writes those of nodes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tpuherd.cloud.errors import Error
from tpuherd.cloud.errors import error as said
from tpuherd.ports import Host

Json = dict[str, Any]
HOST_KEY_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
SSH_KEYS = "ssh-keys"
TIERS = {"spot": "spot", "bestEffort": "spot", "guaranteed": "reserved"}  #: of queued resources


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a worker is."""

    internal_ip: str
    external_ip: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A TPU VM or a pod slice, as the API shows it."""

    name: str
    zone: str
    state: str  #: READY, PREEMPTED, … or a word that we don't know
    health: str
    type: str
    incarnation: str  #: by which it differs from every other node that ever had the name
    created: float
    workers: tuple[Address, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether one can work on it."""
        return self.state == "READY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Guest:
    """What a worker's guest agent has published about it."""

    host_keys: tuple[str, ...] = ()
    instance: str = ""  #: t1v-n-0f996b37-w-0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A queued resource, as the API shows it."""

    name: str
    zone: str
    state: str
    tier: str
    error: Error | None = None  #: of one that has failed
    metadata: Mapping[str, str] = field(default_factory=dict)  #: of its node spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """Something that takes the cloud its time."""

    target: str  #: the last part of a name
    verb: str
    error: Error | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """The metadata of a project, which all its machines see."""

    fingerprint: str
    items: Mapping[str, str]


def nodes(page: Json) -> tuple[list[Node], list[str], str]:
    """A page of a list: its nodes, the zones that did not answer, and the next page's token."""
    unreachable = [name.rpartition("/")[2] for name in page.get("unreachable", ())]
    return [node(one) for one in page.get("nodes", ())], unreachable, page.get("nextPageToken", "")


def requests(page: Json) -> tuple[list[Request], list[str], str]:
    """The same of queued resources."""
    unreachable = [name.rpartition("/")[2] for name in page.get("unreachable", ())]
    found = [request(one) for one in page.get("queuedResources", ())]
    return found, unreachable, page.get("nextPageToken", "")


def request(content: Json) -> Request:
    """One queued resource. Its node spec may be a list or a single one."""
    parts = content["name"].split("/")
    state = content.get("state", {})
    spec = content.get("tpu", {}).get("nodeSpec", ())
    first = spec if isinstance(spec, dict) else next(iter(spec), {})
    tier = next((word for key, word in TIERS.items() if key in content), "on-demand")
    failed = state.get("failedData", {}).get("error")
    return Request(
        name=parts[-1],
        zone=parts[-3],
        state=state.get("state", "UNKNOWN"),
        tier=tier,
        error=said(failed) if failed else None,
        metadata=first.get("node", {}).get("metadata", {}),
    )


def operations(page: Json) -> tuple[list[Operation], str]:
    """A page of operations, and the next page's token."""
    return [operation(one) for one in page.get("operations", ())], page.get("nextPageToken", "")


def operation(content: Json) -> Operation:
    """One operation, also as the answer to a create."""
    metadata = content.get("metadata", {})
    failed = content.get("error")
    return Operation(
        target=str(metadata.get("target", "")).rpartition("/")[2],
        verb=str(metadata.get("verb", "")),
        error=said(failed) if failed else None,
    )


def node(content: Json) -> Node:
    """One node. Names look like projects/P/locations/Z/nodes/N."""
    parts = content["name"].split("/")
    created = content.get("createTime", "")
    return Node(
        name=parts[-1],
        zone=parts[-3],
        state=content.get("state", "UNKNOWN"),
        health=content.get("health", ""),
        type=content.get("acceleratorType", ""),
        incarnation=f"{content.get('id', '')}@{created}",
        created=seconds(created),
        workers=workers(content),
        metadata=content.get("metadata", {}),
    )


def workers(content: Json) -> tuple[Address, ...]:
    """Worker i is the i-th endpoint; of several network cards, the first of each worker."""
    endpoints = content.get("networkEndpoints", ())
    cards = len(content.get("networkConfigs", ())) or 1
    return tuple(
        Address(
            internal_ip=one.get("ipAddress", ""),
            external_ip=one.get("accessConfig", {}).get("externalIp") or None,
        )
        for one in endpoints[::cards]
    )


def seconds(timestamp: str) -> float:
    """2026-11-20T10:46:01.123456789Z as seconds since 1970; 0 for what is none."""
    found = re.fullmatch(r"([-\d]+T[:\d]+)(?:\.(\d{1,6})\d*)?Z", timestamp)
    if found is None:
        return 0.0
    return datetime.fromisoformat(f"{found[1]}.{found[2] or '0':0<6}+00:00").timestamp()


def host(node: Node, worker: int, ssh_port: int, guest: Guest | None = None) -> Host:
    """All that is needed to reach a worker."""
    address = node.workers[worker]
    return Host(
        node=node.name,
        zone=node.zone,
        worker=worker,
        incarnation=node.incarnation,
        internal_ip=address.internal_ip,
        external_ip=address.external_ip,
        ssh_port=ssh_port,
        host_keys=guest.host_keys if guest else (),
    )


def guests(content: Json) -> list[Guest]:
    """The answer to getGuestAttributes: one entry a worker, in order."""
    return [
        guest(one.get("queryValue", {}).get("items", ()))
        for one in content.get("guestAttributes", ())
    ]


def guest(items: Iterable[Json]) -> Guest:
    """What one worker has published."""
    found = {one.get("key"): one.get("value", "") for one in items}
    keys = tuple(f"{kind} {found[kind].split()[0]}" for kind in HOST_KEY_KINDS if found.get(kind))
    return Guest(host_keys=keys, instance=found.get("hostname", ""))


def location(content: Json) -> str:
    """Where a bucket is, as Cloud Storage writes it: US-CENTRAL2, EU, NAM4."""
    return str(content.get("location", ""))


def project(content: Json) -> Project:
    """The metadata of a Compute project."""
    metadata = content.get("commonInstanceMetadata", {})
    return Project(
        fingerprint=metadata.get("fingerprint", ""),
        items={one["key"]: one.get("value", "") for one in metadata.get("items", ())},
    )


def project_metadata(project: Project) -> Json:
    """The body that replaces a project's metadata, if nobody has written since."""
    return {
        "fingerprint": project.fingerprint,
        "items": [{"key": key, "value": value} for key, value in project.items.items()],
    }


def uses_os_login(node: Node, project: Project | None) -> bool:
    """Whether keys in the metadata are of no use; the node's own word goes first."""
    word = node.metadata.get("enable-oslogin")
    if word is None and project is not None:
        word = project.items.get("enable-oslogin")
    return (word or "").upper() == "TRUE"


def ignores_project_keys(node: Node) -> bool:
    """Whether only the node's own keys count."""
    return node.metadata.get("block-project-ssh-keys", "").upper() == "TRUE"


def with_key(metadata: Mapping[str, str], login: str, public: str) -> dict[str, str] | None:
    """The metadata with this key added to the lines that are there; None if it is among them."""
    text = metadata.get(SSH_KEYS, "")
    mine = f"{login}:{public}"
    if any(" ".join(line.split()[:2]) == mine for line in text.splitlines()):
        return None
    between = "\n" if text and not text.endswith("\n") else ""
    return {**metadata, SSH_KEYS: f"{text}{between}{mine} tpuherd"}
