"""The shapes of the cloud's JSON, as far as we read it: an answer of another shape is an error."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from tpuherd.model.slots_and_plan import Goal, Offer

ID = r"[A-Za-z0-9][A-Za-z0-9._-]*"
#: projects/P/locations/Z/nodes/N: ids end up in paths, in file names and on terminals.
Name = Annotated[str, Meta(pattern=rf"^projects/[^/]+/locations/{ID}/[A-Za-z]+/{ID}$")]
Place = Annotated[str, Meta(pattern=rf"^([^/]+/)*{ID}$")]


class Shape(Struct, frozen=True, rename="camel"):
    """Fields that are missing have a default; fields that are new are left alone."""


class Page(Shape, frozen=True):
    """What every list has."""

    unreachable: list[Place] = []
    next_page_token: str = ""


class Nodes(Page, frozen=True):
    nodes: list[dict[str, Any]] = []


class Requests(Page, frozen=True):
    queued_resources: list[dict[str, Any]] = []


class Status(Shape, frozen=True):
    """google.rpc.Status"""

    code: int = 0
    message: str = ""


class Metadata(Shape, frozen=True):
    """Of an operation."""

    target: str = ""
    verb: str = ""


class Operation(Shape, frozen=True):
    name: str = ""
    metadata: Metadata = Metadata()
    error: Status | None = None


class Operations(Page, frozen=True):
    operations: list[Operation] = []


class AccessConfig(Shape, frozen=True):
    external_ip: str = ""


class Endpoint(Shape, frozen=True):
    ip_address: str = ""
    access_config: AccessConfig = AccessConfig()


class NodeSpec(Shape, frozen=True):
    """What of a node stands in a queued resource."""

    metadata: dict[str, str] = {}


class Node(NodeSpec, frozen=True, kw_only=True):
    name: Name
    id: str | int = ""
    state: str = "UNKNOWN"
    health: str = ""
    accelerator_type: str = ""
    create_time: str = ""
    network_endpoints: list[Endpoint] = []
    network_configs: list[dict[str, Any]] = []


class FailedData(Shape, frozen=True):
    error: Status | None = None


class RequestState(Shape, frozen=True):
    state: str = "UNKNOWN"
    failed_data: FailedData = FailedData()


class Part(Shape, frozen=True):
    node: NodeSpec = NodeSpec()


class Tpu(Shape, frozen=True):
    node_spec: list[Part] | Part = []


class Request(Shape, frozen=True, kw_only=True):
    """A queued resource; which of the last four is there says its tier."""

    name: Name
    state: RequestState = RequestState()
    tpu: Tpu = Tpu()
    spot: dict[str, Any] | None = None
    best_effort: dict[str, Any] | None = None
    guaranteed: dict[str, Any] | None = None


class Item(Shape, frozen=True, kw_only=True):
    """A line of metadata or of guest attributes."""

    key: str
    value: str = ""


class Items(Shape, frozen=True):
    fingerprint: str = ""
    items: list[Item] = []


class GuestAttributes(Shape, frozen=True):
    query_value: Items = Items()


class Guests(Shape, frozen=True):
    guest_attributes: list[GuestAttributes] = []


class Project(Shape, frozen=True):
    """A project of Compute."""

    common_instance_metadata: Items = Items()


class Card(Struct, frozen=True):
    """What we write into the metadata of a bid, as far as we read it again."""

    v: int = 0
    slot: str = ""
    job: dict[str, Any] = {}
    goal: Goal = Goal.RUN
    generation: int = 0
    owner: str = ""
    node_digest: str = ""
    code_digest: str = ""
    snapshot: str = ""
    offer: Offer | None = None
    made_at: float = 0.0
    asked_at: float = 0.0


class Bucket(Shape, frozen=True):
    location: str = ""
