"""What `herd smi` reads of hosts and their chips. None: not known."""

from dataclasses import dataclass

STEP_S_MIN = 1e-9  #: no step is faster


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipProcess:
    """A process that has a chip open."""

    pid: int | None  #: None: hidden from the login
    user: str
    command: str
    task: str = ""  #: of herd


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipReading:
    """One chip, with libtpu's values."""

    device: str  #: /dev/accel0
    hbm_used: int | None = None  #: bytes, like the next
    hbm_total: int | None = None
    duty_percent: float | None = None
    bandwidth_percent: float | None = None
    idle_s: float | None = None
    invalid: frozenset[str] = frozenset()  #: fields above whose values can't be true
    processes: tuple[ChipProcess, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineReading:
    """The processors, memory, disk and network of a host."""

    load: float | None  #: processes that want to run, on average of a minute
    cores: int | None
    ram_used: int | None  #: bytes, like the others
    ram_total: int | None
    disk_free: int | None  #: where the login's home is
    disk_total: int | None
    cpu_percent: float | None = None  #: of all processors
    net_in: float | None = None  #: bytes per second, like the next
    net_out: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingReading:
    """How far the attempt is that runs on a host, as its script reported last."""

    slot: str
    attempt: int
    step: int | None
    step_s: float | None  #: the usual time of a step
    age_s: float  #: of the report

    @property
    def step_rate(self) -> float | None:
        """Steps per second."""
        return 1.0 / self.step_s if self.step_s and self.step_s > STEP_S_MIN else None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostReading:
    """One host with its chips."""

    host: str  #: gpt-0/w0
    node: str
    zone: str
    read_at: float
    late_s: float = 0.0  #: how old libtpu's values were when they were read
    machine: MachineReading | None = None  #: None: the host did not answer
    chips: tuple[ChipReading, ...] = ()
    training: TrainingReading | None = None
    clock_ahead_s: float = 0.0  #: the host's clock, compared with ours
    notice: str = ""  #: preempted, or what maintenance does to it
    why: str = ""  #: why values are missing

    def age_s(self, now: float) -> float:
        """Return how old the reading is."""
        return max(0.0, now - self.read_at) + self.late_s
