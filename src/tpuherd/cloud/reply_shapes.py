"""The shapes of the cloud's JSON, as far as we read it; a reply of another shape is an error."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from tpuherd.model.slots_and_plan import Goal, Offer

ID = r"[A-Za-z0-9][A-Za-z0-9._-]*"
#: projects/P/locations/Z/nodes/N; strict, as ids end up in paths, file names and terminals.
ResourceName = Annotated[str, Meta(pattern=rf"^projects/[^/]+/locations/{ID}/[A-Za-z]+/{ID}\Z")]
ResourcePath = Annotated[str, Meta(pattern=rf"^([^/]+/)*{ID}\Z")]


class ApiObject(Struct, frozen=True, rename="camel"):
    """Missing fields get a default; unknown fields are ignored."""


class ListReply(ApiObject, frozen=True):
    """What every list reply has."""

    unreachable: list[ResourcePath] = []
    next_page_token: str = ""


class NodeListReply(ListReply, frozen=True):
    nodes: list[dict[str, Any]] = []


class QueuedResourceListReply(ListReply, frozen=True):
    queued_resources: list[dict[str, Any]] = []


class ApiStatus(ApiObject, frozen=True):
    """google.rpc.Status"""

    code: int = 0
    message: str = ""


class OperationMetadata(ApiObject, frozen=True):
    target: str = ""
    verb: str = ""


class ApiOperation(ApiObject, frozen=True):
    name: str = ""
    done: bool = False
    metadata: OperationMetadata = OperationMetadata()
    error: ApiStatus | None = None


class OperationListReply(ListReply, frozen=True):
    operations: list[ApiOperation] = []


class AccessConfig(ApiObject, frozen=True):
    external_ip: str = ""


class NetworkEndpoint(ApiObject, frozen=True):
    ip_address: str = ""
    access_config: AccessConfig = AccessConfig()


class ApiNodeSpec(ApiObject, frozen=True):
    """The part of a node that a queued resource contains."""

    metadata: dict[str, str] = {}


class SchedulingConfig(ApiObject, frozen=True):
    """Which of these is set tells the tier."""

    preemptible: bool = False
    spot: bool = False
    reserved: bool = False


class ApiNode(ApiNodeSpec, frozen=True, kw_only=True):
    name: ResourceName
    id: str | int = ""
    state: str = "UNKNOWN"
    health: str = ""
    accelerator_type: str = ""
    runtime_version: str = ""
    scheduling_config: SchedulingConfig = SchedulingConfig()
    create_time: str = ""
    queued_resource: ResourcePath = ""
    network_endpoints: list[NetworkEndpoint] = []
    network_configs: list[dict[str, Any]] = []


class FailedData(ApiObject, frozen=True):
    error: ApiStatus | None = None


class QueuedResourceState(ApiObject, frozen=True):
    state: str = "UNKNOWN"
    failed_data: FailedData = FailedData()


class NodeSpecPart(ApiObject, frozen=True):
    node: ApiNodeSpec = ApiNodeSpec()


class TpuSpec(ApiObject, frozen=True):
    node_spec: list[NodeSpecPart] | NodeSpecPart = []


class ApiQueuedResource(ApiObject, frozen=True, kw_only=True):
    """A queued resource; its tier follows from which of the last three fields is set."""

    name: ResourceName
    state: QueuedResourceState = QueuedResourceState()
    tpu: TpuSpec = TpuSpec()
    spot: dict[str, Any] | None = None
    best_effort: dict[str, Any] | None = None
    guaranteed: dict[str, Any] | None = None


class MetadataItem(ApiObject, frozen=True, kw_only=True):
    """An entry of metadata or of guest attributes."""

    key: str
    value: str = ""


class MetadataItems(ApiObject, frozen=True):
    fingerprint: str = ""
    items: list[MetadataItem] = []


class GuestAttributes(ApiObject, frozen=True):
    query_value: MetadataItems = MetadataItems()


class GuestListReply(ApiObject, frozen=True):
    guest_attributes: list[GuestAttributes] = []


class ApiProject(ApiObject, frozen=True):
    """A Compute project."""

    id: str | int = ""  #: its number
    default_service_account: str = ""
    common_instance_metadata: MetadataItems = MetadataItems()


class ResourceProject(ApiObject, frozen=True):
    """A project as Resource Manager shows it."""

    project_number: str | int = ""
    lifecycle_state: str = ""


class BidCard(Struct, frozen=True):
    """The card that we write into a bid's metadata, as far as we read it back."""

    v: int = 0
    slot: str = ""
    job: dict[str, Any] = {}
    goal: Goal = Goal.RUN
    generation: int = 0
    owner: str = ""
    node_digest: str = ""
    code_digest: str = ""
    snapshot: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9]{0,64}\Z")] = ""  #: names a file here
    offer: Offer | None = None
    made_at: float = 0.0
    asked_at: float = 0.0
    bid: str = ""  #: of an adopted node, whose name does not tell it
    node: str = ""  #: its incarnation


class BucketPlacement(ApiObject, frozen=True):
    data_locations: list[str] = []


class UniformAccess(ApiObject, frozen=True):
    enabled: bool = False


class BucketAccess(ApiObject, frozen=True):
    uniform_bucket_level_access: UniformAccess = UniformAccess()


class PolicyBinding(ApiObject, frozen=True):
    """A role and who has it; with a condition only sometimes."""

    role: str = ""
    members: list[str] = []
    condition: dict[str, Any] | None = None


class ApiPolicy(ApiObject, frozen=True):
    etag: str = ""
    bindings: list[PolicyBinding] = []


class ApiPermissions(ApiObject, frozen=True):
    permissions: list[str] = []


class ApiServiceAccount(ApiObject, frozen=True):
    email: str = ""


class ApiBucket(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    location: str = ""
    iam_configuration: BucketAccess = BucketAccess()
    custom_placement_config: BucketPlacement | None = None


class QuotaBucket(ApiObject, frozen=True):
    """A limit in one place; without dimensions everywhere else."""

    effective_limit: Annotated[str, Meta(pattern=r"^-?[0-9]{1,18}$")] = "0"
    dimensions: dict[str, str] = {}


class QuotaLimitReply(ApiObject, frozen=True):
    quota_buckets: list[QuotaBucket] = []


class QuotaMetric(ApiObject, frozen=True):
    display_name: str = ""
    consumer_quota_limits: list[QuotaLimitReply] = []


class QuotaMetricsReply(ApiObject, frozen=True):
    metrics: list[QuotaMetric] = []
    next_page_token: str = ""


class EnabledService(ApiObject, frozen=True):
    """An API of a project: projects/123/services/tpu.googleapis.com"""

    name: ResourcePath = ""
    state: str = ""


class ServiceListReply(ListReply, frozen=True):
    services: list[EnabledService] = []


class UsageOperation(ApiObject, frozen=True):
    """The operation that enables an API or creates its identity."""

    name: str = ""
    done: bool = False
    error: ApiStatus | None = None
    response: dict[str, Any] = {}


class FirewallTraffic(ApiObject, frozen=True):
    """A protocol; without ports it is about all of them."""

    protocol: str = field(name="IPProtocol", default="")
    ports: list[Annotated[str, Meta(pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$")]] = []


class ApiFirewall(ApiObject, frozen=True):
    name: ResourcePath = ""
    network: str = ""
    description: str = ""
    direction: str = "INGRESS"
    priority: int = 1000
    disabled: bool = False
    source_ranges: list[str] = []
    source_tags: list[str] = []
    source_service_accounts: list[str] = []
    target_tags: list[str] = []
    target_service_accounts: list[str] = []
    allowed: list[FirewallTraffic] = []
    denied: list[FirewallTraffic] = []


class FirewallListReply(ListReply, frozen=True):
    items: list[ApiFirewall] = []


class ApiNetwork(ApiObject, frozen=True):
    name: ResourcePath = ""
    auto_create_subnetworks: bool = False


class RegionQuota(ApiObject, frozen=True):
    metric: str = ""
    limit: float = 0.0
    usage: float = 0.0


class ApiRegion(ApiObject, frozen=True):
    name: ResourcePath = ""
    quotas: list[RegionQuota] = []


class RegionListReply(ListReply, frozen=True):
    items: list[ApiRegion] = []


class NetworkListReply(ListReply, frozen=True):
    items: list[ApiNetwork] = []


class ComputeFault(ApiObject, frozen=True):
    code: str = ""
    message: str = ""


class ComputeFaults(ApiObject, frozen=True):
    errors: list[ComputeFault] = []


class ComputeOperationReply(ApiObject, frozen=True):
    name: str = ""
    status: str = ""
    error: ComputeFaults | None = None


class PosixAccount(ApiObject, frozen=True):
    username: Annotated[str, Meta(pattern=r"^([a-z_][a-z0-9_.-]{0,127})?$")] = ""
    primary: bool = False


class LoginKey(ApiObject, frozen=True):
    key: str = ""


class ApiLoginProfile(ApiObject, frozen=True):
    """OS Login's profile of a user, with the keys by fingerprint."""

    posix_accounts: list[PosixAccount] = []
    ssh_public_keys: dict[str, LoginKey] = {}
