"""The state of the world beside TPUs: project metadata, networks, firewall rules, buckets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tpuherd_sim.model.storage_state import Storage
from tpuherd_sim.model.world_parts import Dice, Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Firewall:
    name: str
    id: int
    created: float
    network: str  #: its name
    spec: Mapping[str, Any]  #: the other fields, validated and completed, in the API's format


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    name: str
    id: int
    created: float
    auto: bool  #: has a subnetwork of its own name in every region
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ManagedFolder:
    """Names of a bucket that begin alike and have a policy of their own."""

    created: float
    bindings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy_version: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """A storage bucket without its objects."""

    name: str
    project: str
    location: str  #: upper case: US-CENTRAL2, NAM4, US
    kind: str  #: region, dual-region or multi-region
    regions: tuple[str, ...]  #: of a custom dual-region
    storage_class: str
    created: float
    labels: Mapping[str, str] = field(default_factory=dict)
    uniform: bool = True  #: access is decided by its policy alone, not by objects
    public_access: str = "inherited"  #: or enforced: never public
    bindings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: members by role
    policy_version: int = 1  #: the first is that of a new bucket, which is not stored
    #: those of new objects where access is not uniform; None: the project's teams
    object_bindings: Mapping[str, tuple[str, ...]] | None = None
    folders: Mapping[str, ManagedFolder] = field(default_factory=dict)  #: by name, such as a/b/
    operations: Mapping[str, Any] = field(default_factory=dict)  #: as the API shows them, by id
    deleted: float = 0.0  #: since when it is soft-deleted
    metageneration: int = 1
    versioned: bool = False  #: overwritten and deleted objects stay as noncurrent ones
    #: overwritten and deleted objects can be restored for as long: Google's default is a week
    soft_delete_s: int = 7 * 86400
    said: Mapping[str, Any] = field(default_factory=dict)  #: kept for browsers: cors, website
    lifecycle: tuple[Mapping[str, Any], ...] = ()  #: rules as the API has them, applied once a day
    lifecycle_since: float = 0.0
    default_hold: bool = False  #: new objects are under an event-based hold
    retention_s: int = 0  #: each object is kept for so long
    retention_since: float = 0.0
    retention_locked: bool = False  #: it can only become longer


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceAccount:
    """An identity that nodes may have."""

    email: str
    id: int
    created: float
    display: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectBinding:
    """A role on the project, and who has it."""

    role: str
    members: tuple[str, ...]
    condition: Mapping[str, Any] = field(default_factory=dict)  #: empty: always


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceOperation:
    """The operation that enables or disables APIs."""

    name: str
    services: tuple[str, ...]
    ended: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeOperation:
    """A Compute operation: it takes effect at once and is reported DONE a moment later."""

    name: str
    id: int
    verb: str  #: insert, patch, delete, …
    target: str  #: global/firewalls/x; empty for the project
    target_id: int
    created: float
    ended: float


@dataclass(kw_only=True)
class Services:
    """All state of the world that is not about TPUs."""

    dice: Dice  #: separate, so that tokens and firewall calls do not change the weather
    metadata: dict[str, str] = field(default_factory=dict)  #: the project's, for every host
    firewalls: dict[str, Firewall] = field(default_factory=dict)
    networks: dict[str, Network] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    deleted_buckets: dict[str, Bucket] = field(default_factory=dict)  #: that can be restored
    storage: Storage = field(default_factory=Storage)
    accounts: dict[str, ServiceAccount] = field(default_factory=dict)  #: by e-mail address
    changes: dict[str, ComputeOperation] = field(default_factory=dict)
    policy: tuple[ProjectBinding, ...] | None = None  #: None: that of a new project
    policy_version: int = 1
    #: APIs that were disabled, and from when each answers again; None: it stays disabled
    disabled: dict[str, float | None] = field(default_factory=dict)
    login_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: of OS Login, by user
    service_operations: dict[str, ServiceOperation] = field(default_factory=dict)


def _default_rule(description: str, ranges: str, *allowed: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "priority": 65534,
        "sourceRanges": [ranges],
        "allowed": list(allowed),
        "direction": "INGRESS",
        "logConfig": {"enable": False},
        "disabled": False,
    }


#: The rules of the default network of every new Google project.
DEFAULT_FIREWALLS = {
    "default-allow-icmp": _default_rule(
        "Allow ICMP from anywhere", "0.0.0.0/0", {"IPProtocol": "icmp"}
    ),
    "default-allow-internal": _default_rule(
        "Allow internal traffic on the default network", "10.128.0.0/9",
        {"IPProtocol": "tcp", "ports": ["0-65535"]}, {"IPProtocol": "udp", "ports": ["0-65535"]},
        {"IPProtocol": "icmp"},
    ),
    "default-allow-rdp": _default_rule(
        "Allow RDP from anywhere", "0.0.0.0/0", {"IPProtocol": "tcp", "ports": ["3389"]}
    ),
    "default-allow-ssh": _default_rule(
        "Allow SSH from anywhere", "0.0.0.0/0", {"IPProtocol": "tcp", "ports": ["22"]}
    ),
}  # fmt: skip


def new_services(settings: Settings) -> Services:
    """Return a new project: the default network with its four rules, no metadata, no bucket."""
    dice = Dice(seed=settings.seed)
    network = Network(name="default", id=new_numeric_id(dice), created=settings.created, auto=True)
    rules = {
        name: Firewall(
            name=name, id=new_numeric_id(dice), created=settings.created,
            network="default", spec=spec,
        )
        for name, spec in DEFAULT_FIREWALLS.items()
    }  # fmt: skip
    return Services(dice=dice, networks={"default": network}, firewalls=rules)


def new_numeric_id(dice: Dice) -> int:
    """Return an id like those of Compute: 19 digits."""
    return 10**18 + dice.random_bits() % (8 * 10**18)


def format_compute_time(at: float) -> str:
    """Return a time in the format of Compute and Storage."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
