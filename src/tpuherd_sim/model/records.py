"""The records of a world: nodes, workers, queued resources and operations, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: States in which a node holds machines (counts against the capacity of its zone).
HOLDING = frozenset(
    {
        "CREATING",
        "READY",
        "RESTARTING",
        "REIMAGING",
        "REPAIRING",
        "STARTING",
        "STOPPING",
        "DELETING",
    }
)
#: States that a node leaves by itself.
MOVING = frozenset({"CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "STOPPING"})
#: A node in one of these states is dead and can only be deleted.
DEAD = frozenset({"PREEMPTED", "TERMINATED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestAttribute:
    """An attribute that a host published about itself."""

    namespace: str  #: hostkeys, guestInventory, …
    name: str  #: ssh-ed25519, hostname, …
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """One VM of a node; the record exists once the node has machines."""

    index: int  #: position in the node and in networkEndpoints
    uid: int  #: the instance's number, for instance/id
    name: str  #: t1v-n-0f996b37-w-0
    internal_ip: str
    external_ip: str | None  #: None if the node has enableExternalIps false
    on: bool = True  #: powered
    boot: int = 1  #: incremented by every boot after the first
    up: int = 0  #: the last boot that the running host reported as complete
    soft_off: int = 0  #: incremented when the power button is pressed
    restarting: bool = False  #: the latest press was for an orderly reboot
    hung: bool = False
    network: str = "up"  #: up, down or slow
    ssh: bool = True
    disk_full: bool = False
    clock_skew_s: float = 0.0
    maintenance_event: str = "NONE"  #: metadata instance/maintenance-event of this worker
    guest: tuple[GuestAttribute, ...] = ()  #: newest last; one per (namespace, name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Multislice:
    """A node's position among the nodes of its queued resource."""

    coordinator: (
        str  #: internal address of the first worker of slice 0: MEGASCALE_COORDINATOR_ADDRESS
    )
    slices: int  #: MEGASCALE_NUM_SLICES
    slice: int  #: MEGASCALE_SLICE_ID


@dataclass(frozen=True, kw_only=True, slots=True)
class UpcomingMaintenance:
    """Announced maintenance; times are seconds since 1970."""

    type: str  #: SCHEDULED or UNSCHEDULED
    can_reschedule: bool
    window_start: float
    window_end: float
    latest_window_start: float
    status: str  #: PENDING or ONGOING
    duration_s: float = 0.0  #: duration once it starts (internal, not shown)
    change_ip: bool = True  #: whether the external addresses change (internal, not shown)


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """A problem that the service found on a worker."""

    at: float
    type: str  #: LOW_MEMORY, OUT_OF_MEMORY, …
    details: str
    worker: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A TPU VM or pod slice, as one version-independent record."""

    zone: str
    id: str  #: its name in the zone
    uid: int  #: unique forever; the API's int64 `id`
    created: float
    type: str  #: the accelerator type, e.g. v5litepod-16
    runtime: str  #: the runtime version
    #: The requested fields, in the names of v2alpha1, enums as names: description, labels,
    #: metadata, tags, networkConfig(s), schedulingConfig, serviceAccount, dataDisks, …
    spec: Mapping[str, Any]
    state: str = "CREATING"
    health: str = ""  #: "" until the node is first READY
    health_description: str = ""
    workers: tuple[Worker, ...] = ()  #: empty until the node has machines
    cidr: str = ""
    preempted: bool = False  #: metadata instance/preempted
    maintenance_event: str = "NONE"  #: of the whole node; a worker's own overrides it
    upcoming: UpcomingMaintenance | None = None
    queued_resource: str | None = None  #: the id of the queued resource that created it
    multislice: Multislice | None = None
    symptoms: tuple[Symptom, ...] = ()
    pending: int = 0  #: the agenda item that continues its lifecycle; any other is outdated
    due_at: float = 0.0  #: the earliest end of a state that waits for hosts (CREATING, …)
    operation: str | None = None  #: key of the operation that ends with the current transition

    @property
    def key(self) -> str:
        """The key in `World.nodes`."""
        return f"{self.zone}/{self.id}"

    @property
    def metadata(self) -> Mapping[str, str]:
        """The client's metadata: ssh-keys, startup-script, …"""
        metadata: Mapping[str, str] = self.spec.get("metadata", {})
        return metadata

    @property
    def is_spot(self) -> bool:
        """Whether its capacity may be preempted: spot or preemptible."""
        scheduling = self.spec.get("schedulingConfig", {})
        return bool(
            scheduling.get("spot")
            or scheduling.get("preemptible")
            or scheduling.get("provisioningModel") == "SPOT"
        )

    @property
    def is_reserved(self) -> bool:
        """Whether it belongs to a reservation."""
        scheduling = self.spec.get("schedulingConfig", {})
        return bool(scheduling.get("reserved") or scheduling.get("reservationName"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RpcStatus:
    """An error as google.rpc.Status."""

    code: int
    message: str
    details: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One node that a queued resource requests."""

    node_id: str
    spec: Mapping[str, Any]  #: the requested node, normalised like `Node.spec`
    type: str
    runtime: str


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedResource:
    """A request that waits for capacity and then owns its nodes."""

    zone: str
    id: str
    uid: int
    created: float
    tier: str  #: on-demand, spot, best-effort or guaranteed
    slots: tuple[Slot, ...]
    multislice: bool  #: its nodes form one multislice
    #: The other requested fields: queueingPolicy, guaranteed, reservationName, runDuration,
    #: provisioningModel, …
    spec: Mapping[str, Any]
    state: str = "CREATING"
    initiator: str = ""  #: USER or SERVICE: who ended it
    error: RpcStatus | None = None
    valid_after: float | None = None
    valid_until: float | None = None
    provisioning_since: float | None = None
    ends_at: float | None = None  #: a flex-start request's terminationTime
    pending: int = 0  #: the agenda item that continues its lifecycle
    operation: str | None = None  #: key of the delete or reset operation that ends with it
    forced: bool = False  #: deleted with force

    @property
    def key(self) -> str:
        """The key in `World.requests`."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """A long-running operation and its result."""

    zone: str
    id: str
    collection: str  #: nodes or queuedResources
    target: str  #: the id of its resource
    verb: str  #: create, delete, update, start, stop, …
    created: float
    ended: float | None = None
    error: RpcStatus | None = None
    node: Node | None = None  #: the final node, for the response
    request: QueuedResource | None = None  #: the final queued resource
    settled: bool = False  #: its effect is complete, though it may be reported later
    cancelled: bool = False  #: a client asked to cancel it
    endless: bool = False  #: a weather rule keeps it from finishing
    factor: float = 1.0  #: how many times longer than usual it takes (weather)
    request_id: str = ""  #: the client's idempotency key

    @property
    def key(self) -> str:
        """The key in `World.operations`."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Machines reserved for the project."""

    zone: str
    id: str
    type: str
    size: int  #: chips
    start: float
    end: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordChange:
    """The previous version of a changed record."""

    at: float
    collection: str  #: nodes or queuedResources
    key: str
    old: Node | QueuedResource | None


@dataclass(kw_only=True)
class Allocations:
    """Counters of the model beside its resources."""

    quotas: dict[str, int] = field(
        default_factory=dict
    )  #: "zone/quota id" -> limit; absent = generous default
    tokens: float = 91.0  #: node creates allowed at once
    tokens_at: float = 0.0  #: when `tokens` was computed
    promises: dict[str, str] = field(default_factory=dict)  #: "zone/requestId" -> operation key
    external_made: int = 0  #: external addresses used so far for the first time
    external_free: list[str] = field(default_factory=list)  #: released ones, oldest first
    internal_made: int = 0
    internal_free: list[str] = field(default_factory=list)
    reservations: dict[str, Reservation] = field(default_factory=dict)  #: by zone/id
