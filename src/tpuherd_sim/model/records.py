"""What a world holds: nodes, their workers, queued resources and operations, as frozen values."""

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
#: States out of which a node comes by itself.
MOVING = frozenset({"CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "STOPPING"})
#: A node in one of these is dead: it can only be deleted.
DEAD = frozenset({"PREEMPTED", "TERMINATED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestAttribute:
    """One thing a host told the world about itself."""

    namespace: str  #: hostkeys, guestInventory, …
    name: str  #: ssh-ed25519, hostname, …
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """One VM of a node. Its record is there from the moment the node has machines."""

    index: int  #: its place in the node, and in networkEndpoints
    uid: int  #: the instance's number, for instance/id
    name: str  #: t1v-n-0f996b37-w-0
    internal_ip: str
    external_ip: str | None  #: None where the node has enableExternalIps false
    on: bool = True  #: powered
    boot: int = 1  #: raised by every boot after the first
    up: int = 0  #: the boot that the running host last reported to be through
    soft_off: int = 0  #: raised each time the power button is pressed
    hung: bool = False
    network: str = "up"  #: up, down or slow
    ssh: bool = True
    disk_full: bool = False
    clock_skew_s: float = 0.0
    maintenance_event: str = "NONE"  #: metadata instance/maintenance-event of this worker
    guest: tuple[GuestAttribute, ...] = ()  #: newest last; one a (namespace, name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Multislice:
    """Where a node stands among the nodes of its queued resource."""

    coordinator: (
        str  #: internal address of the first worker of slice 0: MEGASCALE_COORDINATOR_ADDRESS
    )
    slices: int  #: MEGASCALE_NUM_SLICES
    slice: int  #: MEGASCALE_SLICE_ID


@dataclass(frozen=True, kw_only=True, slots=True)
class UpcomingMaintenance:
    """Maintenance that has been announced; times are seconds since 1970."""

    type: str  #: SCHEDULED or UNSCHEDULED
    can_reschedule: bool
    window_start: float
    window_end: float
    latest_window_start: float
    status: str  #: PENDING or ONGOING
    duration_s: float = 0.0  #: how long it will take once it begins (ours, not shown)
    change_ip: bool = True  #: whether the external addresses change with it (ours, not shown)


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """A trouble that the service saw on a worker."""

    at: float
    type: str  #: LOW_MEMORY, OUT_OF_MEMORY, …
    details: str
    worker: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A TPU VM or pod slice, as one version-free record."""

    zone: str
    id: str  #: its name in the zone
    uid: int  #: unique for ever; the API's int64 `id`
    created: float
    type: str  #: the accelerator type, e.g. v5litepod-16
    runtime: str  #: the runtime version
    #: What the client asked for, in the names of v2alpha1, enums as names: description, labels,
    #: metadata, tags, networkConfig(s), schedulingConfig, serviceAccount, dataDisks, …
    spec: Mapping[str, Any]
    state: str = "CREATING"
    health: str = ""  #: "" until the node was READY once
    health_description: str = ""
    workers: tuple[Worker, ...] = ()  #: empty until there are machines
    cidr: str = ""
    preempted: bool = False  #: metadata instance/preempted
    maintenance_event: str = "NONE"  #: of the whole node; a worker's own goes before it
    upcoming: UpcomingMaintenance | None = None
    queued_resource: str | None = None  #: the id of the queued resource that made it
    multislice: Multislice | None = None
    symptoms: tuple[Symptom, ...] = ()
    pending: int = 0  #: the agenda item that goes on with its lifecycle; any other is out of date
    due_at: float = 0.0  #: when a state that waits for hosts (CREATING, …) may end at the earliest
    operation: str | None = None  #: key of the operation that ends when the node is where it goes

    @property
    def key(self) -> str:
        """Its key in `World.nodes`."""
        return f"{self.zone}/{self.id}"

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the client put into metadata: ssh-keys, startup-script, …"""
        metadata: Mapping[str, str] = self.spec.get("metadata", {})
        return metadata

    @property
    def is_spot(self) -> bool:
        """Whether its capacity may be taken back: spot or preemptible."""
        scheduling = self.spec.get("schedulingConfig", {})
        return bool(
            scheduling.get("spot")
            or scheduling.get("preemptible")
            or scheduling.get("provisioningModel") == "SPOT"
        )

    @property
    def is_reserved(self) -> bool:
        """Whether it lives in a reservation."""
        scheduling = self.spec.get("schedulingConfig", {})
        return bool(scheduling.get("reserved") or scheduling.get("reservationName"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RpcStatus:
    """Why something failed, as google.rpc.Status."""

    code: int
    message: str
    details: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One node that a queued resource asks for."""

    node_id: str
    spec: Mapping[str, Any]  #: the node as asked for, normalised as `Node.spec`
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
    multislice: bool  #: its nodes make one run
    #: The rest of what the client asked for: queueingPolicy, guaranteed, reservationName,
    #: runDuration, provisioningModel, …
    spec: Mapping[str, Any]
    state: str = "CREATING"
    initiator: str = ""  #: USER or SERVICE where somebody or something ended it
    error: RpcStatus | None = None
    valid_after: float | None = None
    valid_until: float | None = None
    provisioning_since: float | None = None
    ends_at: float | None = None  #: a flex-start request's terminationTime
    pending: int = 0  #: the agenda item that goes on with its lifecycle
    operation: str | None = None  #: key of the delete or reset that ends with it
    forced: bool = False  #: deleted with force

    @property
    def key(self) -> str:
        """Its key in `World.requests`."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """Something long that was begun, and how it ended."""

    zone: str
    id: str
    collection: str  #: nodes or queuedResources
    target: str  #: the id of what it is done to
    verb: str  #: create, delete, update, start, stop, …
    created: float
    ended: float | None = None
    error: RpcStatus | None = None
    node: Node | None = None  #: the node as it was at the end, for the response
    request: QueuedResource | None = None  #: the queued resource as it was at the end
    settled: bool = False  #: what it stands for is over, though this may be said later
    cancelled: bool = False  #: somebody asked for its cancellation
    endless: bool = False  #: the weather wants it never to end
    factor: float = 1.0  #: how much longer than needed it takes (weather)
    request_id: str = ""  #: the client's idempotency key

    @property
    def key(self) -> str:
        """Its key in `World.operations`."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Machines set aside for the project."""

    zone: str
    id: str
    type: str
    size: int  #: chips
    start: float
    end: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordChange:
    """One record as it was before something happened to it."""

    at: float
    collection: str  #: nodes or queuedResources
    key: str
    old: Node | QueuedResource | None


@dataclass(kw_only=True)
class Allocations:
    """What the model keeps count of beside its resources."""

    quotas: dict[str, int] = field(
        default_factory=dict
    )  #: "zone/quota id" -> limit; absent = plenty
    tokens: float = 91.0  #: node creates that are allowed at once
    tokens_at: float = 0.0  #: when that was counted
    promises: dict[str, str] = field(default_factory=dict)  #: "zone/requestId" -> operation key
    external_made: int = 0  #: external addresses used so far for the first time
    external_free: list[str] = field(default_factory=list)  #: released ones, oldest first
    internal_made: int = 0
    internal_free: list[str] = field(default_factory=list)
    reservations: dict[str, Reservation] = field(default_factory=dict)  #: by zone/id
