"""Parses the cloud's JSON: only this module knows the field names of replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tpuherd.cloud.error_replies import (
    BETWEEN,
    UNAVAILABLE,
    CloudError,
    MalformedAnswer,
    clean_message,
)
from tpuherd.lazy_modules import import_lazily
from tpuherd.ports import Host
from tpuherd.targets import find_bid_name

if TYPE_CHECKING:
    import msgspec

    from tpuherd.cloud import reply_shapes, request_bodies
else:  # importing them takes 50 ms, which many commands do not need
    msgspec = import_lazily("msgspec")
    request_bodies = import_lazily("tpuherd.cloud.request_bodies")
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

T = TypeVar("T")
S = TypeVar("S")
Json = dict[str, Any]
HOST_KEY_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
SSH_KEYS = "ssh-keys"
CARD = "tpuherd"  #: as in model.node_spec, which takes long to load
ZONE_OF = re.compile(r"projects/[^/]+/locations/([a-z0-9-]+)/")


class ListPage(NamedTuple, Generic[T]):
    """One page of a list."""

    items: list[T]
    unknown: list[str]  #: zones that did not answer, or with a malformed reply
    token: str  #: for the next page
    trouble: str = ""  #: what was malformed


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerAddress:
    """The addresses of a worker."""

    internal_ip: str
    external_ip: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A TPU VM or a pod slice, as the API shows it."""

    name: str
    zone: str
    state: str  #: READY, PREEMPTED, …, or one that we don't know
    health: str
    type: str
    incarnation: str  #: distinguishes it from every other node that ever had this name
    created: float
    workers: tuple[WorkerAddress, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    request: str = ""  #: the queued resource that created it
    adopted: str = ""  #: the bid that it was adopted as, if another tool created it
    runtime: str = ""
    tier: str = ""

    @property
    def bid(self) -> str:
        """The bid that it belongs to; "" if it is not herd's. A job may name its nodes itself."""
        return self.created_by or self.adopted

    @property
    def created_by(self) -> str:
        """The bid that created it, without what its card says."""
        return find_bid_name(self.name, self.request)

    @property
    def ready(self) -> bool:
        """Whether its state is READY."""
        return self.state == "READY"


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestInfo:
    """What a worker's guest agent published."""

    host_keys: tuple[str, ...] = ()
    instance: str = ""  #: t1v-n-0f996b37-w-0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedResource:
    """A queued resource, as the API shows it."""

    name: str
    zone: str
    state: str
    tier: str
    error: CloudError | None = None  #: if it failed
    metadata: Mapping[str, str] = field(default_factory=dict)  #: from its node spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """A long-running operation."""

    id: str
    target: str  #: the name of its resource
    verb: str
    done: bool = False
    error: CloudError | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectMetadata:
    """The metadata of a Compute project, which all its VMs share."""

    fingerprint: str
    items: Mapping[str, str]


def parse_nodes(content: Json) -> ListPage[Node]:
    """A page of a list of nodes."""
    page = parse_shape(content, reply_shapes.NodeListReply)
    return parse_list_page(page, page.nodes, parse_node)


def parse_queued_resources(content: Json) -> ListPage[QueuedResource]:
    """A page of a list of queued resources."""
    page = parse_shape(content, reply_shapes.QueuedResourceListReply)
    return parse_list_page(page, page.queued_resources, parse_queued_resource)


def parse_list_page(
    page: reply_shapes.ListReply, items: Iterable[Json], read: Callable[[Json], T]
) -> ListPage[T]:
    """The items of a page; the zone of a malformed item counts as one that did not answer."""
    found: list[T] = []
    unknown = [last_part(name) for name in page.unreachable]
    trouble = ""
    for item in items:
        try:
            found.append(read(item))
        except MalformedAnswer as error:
            zone = ZONE_OF.match(str(item.get("name", "")))
            if zone is None:
                raise
            unknown.append(zone[1])
            trouble = f"{zone[1]}: {error.sentence}"
    return ListPage(found, unknown, page.next_page_token, trouble)


def parse_shape(content: object, shape: type[S]) -> S:
    """JSON as one of our reply shapes; raises MalformedAnswer if it does not fit."""
    try:
        return msgspec.convert(content, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedAnswer(f"the cloud's reply is malformed: {error}", hint=BETWEEN) from error


def parse_queued_resource(content: Json) -> QueuedResource:
    """One queued resource, whose node spec may be a list or a single object."""
    one = parse_shape(content, reply_shapes.ApiQueuedResource)
    spec = one.tpu.node_spec
    first = next(iter(spec if isinstance(spec, list) else [spec]), None)
    spot = one.spot is not None or one.best_effort is not None
    return QueuedResource(
        name=last_part(one.name),
        zone=one.name.split("/")[3],
        state=one.state.state,
        tier="spot" if spot else "on-demand" if one.guaranteed is None else "reserved",
        error=status_error(one.state.failed_data.error),
        metadata=first.node.metadata if first else {},
    )


def parse_operations(content: Json) -> ListPage[Operation]:
    """A page of a list of operations."""
    page = parse_shape(content, reply_shapes.OperationListReply)
    return ListPage([build_operation(one) for one in page.operations], [], page.next_page_token)


def parse_operation(content: Json) -> Operation:
    """One operation, such as the reply to a create."""
    return build_operation(parse_shape(content, reply_shapes.ApiOperation))


def build_operation(one: reply_shapes.ApiOperation) -> Operation:
    return Operation(
        id=last_part(one.name),
        done=one.done,
        target=last_part(one.metadata.target),
        verb=one.metadata.verb,
        error=status_error(one.error),
    )


def status_error(status: reply_shapes.ApiStatus | None) -> CloudError | None:
    """A google.rpc.Status as our error."""
    if status is None:
        return None
    return CloudError(code=status.code or UNAVAILABLE, sentence=clean_message(status.message))


def parse_node(content: Json) -> Node:
    """One node, whose name is projects/P/locations/Z/nodes/N."""
    one = parse_shape(content, reply_shapes.ApiNode)
    incarnation = f"{one.id}@{one.create_time}"
    tiers = msgspec.structs.asdict(one.scheduling_config)
    return Node(
        name=last_part(one.name),
        zone=one.name.split("/")[3],
        state=one.state,
        health=one.health,
        type=one.accelerator_type,
        incarnation=incarnation,
        created=parse_timestamp(one.create_time),
        workers=worker_addresses(one),
        metadata=one.metadata,
        request=last_part(one.queued_resource),
        adopted=adopted_bid(one.metadata, incarnation),
        runtime=one.runtime_version,
        tier=next((tier for tier, is_set in tiers.items() if is_set), "on-demand"),
    )


def adopted_bid(metadata: Mapping[str, str], incarnation: str) -> str:
    """The bid on the card of an adopted node; "" if it has none, or was created anew since."""
    if '"bid"' not in metadata.get(CARD, ""):
        return ""  # most nodes: spares reading their cards
    card = request_bodies.read_card(metadata)
    if card.get("node") != incarnation:
        return ""  # the metadata was copied from another node
    return find_bid_name(str(card.get("bid", "")), "")


def last_part(name: str) -> str:
    """N of projects/P/locations/Z/nodes/N"""
    return name.rpartition("/")[2]


def worker_addresses(node: reply_shapes.ApiNode) -> tuple[WorkerAddress, ...]:
    """Worker i is the i-th endpoint; with several network cards, the first one of each worker."""
    return tuple(
        WorkerAddress(internal_ip=one.ip_address, external_ip=one.access_config.external_ip or None)
        for one in node.network_endpoints[:: len(node.network_configs) or 1]
    )


def parse_timestamp(timestamp: str) -> float:
    """2026-11-20T10:46:01.123456789Z as seconds since 1970; 0 if it is malformed."""
    found = re.fullmatch(r"([-\d]+T[:\d]+)(?:\.(\d{1,6})\d*)?Z", timestamp)
    if found is None:
        return 0.0
    try:
        exact = datetime.fromisoformat(f"{found[1]}.{found[2] or '0':0<6}+00:00")
    except ValueError:
        return 0.0
    return exact.timestamp()


def worker_host(node: Node, worker: int, ssh_port: int, guest: GuestInfo | None = None) -> Host:
    """A worker as a Host to connect to."""
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
        bid=node.bid,
    )


def parse_guests(content: Json) -> list[GuestInfo]:
    """The reply to getGuestAttributes: one entry per worker, in order."""
    found = parse_shape(content, reply_shapes.GuestListReply).guest_attributes
    return [parse_guest({item.key: item.value for item in one.query_value.items}) for one in found]


def parse_guest(found: Mapping[str, str]) -> GuestInfo:
    """What one worker published."""
    published = {kind: found[kind].split() for kind in HOST_KEY_KINDS if kind in found}
    keys = tuple(f"{kind} {words[0]}" for kind, words in published.items() if words)
    return GuestInfo(host_keys=keys, instance=found.get("hostname", ""))


def parse_bucket_location(content: Json) -> str:
    """A bucket's location in Cloud Storage's spelling: US-CENTRAL2, EU, NAM4.

    Two regions that the bucket's owner chose are joined: US-EAST1+US-EAST4.
    """
    bucket = parse_shape(content, reply_shapes.ApiBucket)
    chosen = bucket.custom_placement_config
    if chosen is not None and chosen.data_locations:
        return "+".join(chosen.data_locations).upper()
    return bucket.location.upper()


def parse_project(content: Json) -> ProjectMetadata:
    """The metadata of a Compute project."""
    found = parse_shape(content, reply_shapes.ApiProject).common_instance_metadata
    items = {one.key: one.value for one in found.items}
    return ProjectMetadata(fingerprint=found.fingerprint, items=items)


def project_metadata_body(project: ProjectMetadata) -> Json:
    """The body that replaces a project's metadata unless it has changed since we read it."""
    return {
        "fingerprint": project.fingerprint,
        "items": [{"key": key, "value": value} for key, value in project.items.items()],
    }


def uses_os_login(node: Node, project: ProjectMetadata | None) -> bool:
    """Whether OS Login is on, so that keys in the metadata are ignored; the node's value wins."""
    word = node.metadata.get("enable-oslogin")
    if word is None and project is not None:
        word = project.items.get("enable-oslogin")
    return (word or "").upper() == "TRUE"


def ignores_project_keys(node: Node) -> bool:
    """Whether the node accepts only keys in its own metadata."""
    return node.metadata.get("block-project-ssh-keys", "").upper() == "TRUE"


def add_ssh_key(metadata: Mapping[str, str], login: str, public: str) -> dict[str, str] | None:
    """The metadata with this key appended to its ssh-keys; None if it already has the key."""
    text = metadata.get(SSH_KEYS, "")
    mine = f"{login}:{public}"
    if any(" ".join(line.split()[:2]) == mine for line in text.splitlines()):
        return None
    between = "\n" if text and not text.endswith("\n") else ""
    return {**metadata, SSH_KEYS: f"{text}{between}{mine} tpuherd"}
