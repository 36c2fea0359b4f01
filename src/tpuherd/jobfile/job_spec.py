"""A job as its user wrote it, with every field parsed and valid."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from tpuherd.jobfile.head_start_field import HEAD_START_CHOICES
from tpuherd.model.receivers import Receiver
from tpuherd.model.search import Search

SPOT = "spot"
PRIORITIES = LOW, NORMAL, HIGH = ("low", "normal", "high")
QUEUED, DIRECT = "queued", "direct"


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How often to restart; None is unlimited."""

    failures: int | None = 3
    preemptions: int | None = None
    stalls: int | None = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRetention:
    """How long to keep the node after the job ended."""

    done: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stall:
    """After how many seconds without progress the command is restarted."""

    step: float = 600.0
    first: float = 2700.0  #: until the first step


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """How the hosts of a node are connected."""

    name: str = ""
    subnetwork: str = ""
    external_ips: bool = True
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """Where a secret value comes from; the value itself is never in the job."""

    name: str
    source: str  #: env, file or command
    value: str  #: the name of the variable, the path or the command


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    name: str
    accelerator: tuple[str, ...]  #: in order of preference
    runtime: tuple[str, ...] = ()  #: empty: the default for the generation
    zones: tuple[str, ...] = ()  #: empty: any
    tier: tuple[str, ...] = (SPOT,)
    copies: int = 1
    slices: int = 1
    workdir: str = ""
    repo: str = ""
    python: str = ""  #: empty: the image's own
    requirements: str = ""
    nfs: Mapping[str, str] = field(default_factory=dict)  #: folders with their servers
    setup: tuple[str, ...] = ()
    run: str | tuple[str, ...] | None = None
    cluster: str = ""  #: ray
    image: str = ""  #: docker://NAME, of a container
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    checkpoint: str = ""
    profiler: bool = False
    head_start: tuple[str, ...] = HEAD_START_CHOICES
    buckets: Mapping[str, str] = field(default_factory=dict)  #: locations, looked up or stated
    data_rate: float = 100e6  #: bytes a second that each host is assumed to read
    egress_budget: float = 0.0  #: dollars a day; 0: data must be near
    outputs: tuple[str, ...] = ()
    retry: Retry = field(default_factory=Retry)
    stall: Stall = field(default_factory=Stall)
    grace: float = 30.0
    max_lifetime: float = inf
    deadline: str = ""  #: a time, or a duration from its submission on
    work: float | None = None  #: seconds on nodes that work without a break; None: not stated
    idle_timeout: float = 86_400.0
    max_cost: float = inf
    max_cost_per_hour: float = inf
    node: NodeRetention = field(default_factory=NodeRetention)
    patience: float = 600.0
    priority: str = NORMAL
    request: str = QUEUED
    exact: bool = False
    node_name: str = ""
    reservation: str = ""
    service_account: str = ""
    network: Network = field(default_factory=Network)
    labels: Mapping[str, str] = field(default_factory=dict)
    data_disks: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    notify: tuple[Receiver, ...] | None = None  #: None: those of the project
    sweep: Search | None = None
