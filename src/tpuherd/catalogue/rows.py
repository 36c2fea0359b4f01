"""The row types of the tables."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """One size of TPU, such as v4-16."""

    type: str
    generation: str
    enum: str | None  #: the API's name of the generation; None: only on GKE
    topology: str  #: of chips, such as 2x2x2
    cores: int
    chips: int
    chips_per_host: int
    hosts: int
    chips_per_host_bounds: str  #: such as 2,2,1
    host_bounds: str
    hbm_gib: int
    bf16_tflops: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One generation of chips."""

    name: str  #: v2 v3 v4 v5e v5p v6e tpu7x
    prefix: str  #: prefix of its types: v5litepod
    enum: str | None
    cores_per_chip: int
    devices_per_chip: int  #: as JAX counts them
    hbm_gib_per_chip: int
    hbm_gb_per_s: int
    bf16_tflops_per_chip: int
    torus: int  #: dimensions of its interconnect
    pci: str  #: PCI device id; the vendor is 0x1ae0
    subsystem: str
    device: str  #: accel or vfio: the chips' files in /dev
    machine_types: Mapping[int, str]  #: by the host's number of chips; missing if not known
    machines: Mapping[int, tuple[int, int]]  #: vCPUs and GB of RAM, by the host's number of chips
    multislice: bool  #: several of its nodes can run one program
    runtime: str  #: the documented image
    gke: str  #: the label of its nodes in GKE; "" if none is known


@dataclass(frozen=True, kw_only=True, slots=True)
class Zone:
    """A zone with TPUs."""

    name: str
    region: str
    types: frozenset[str]  #: accelerator types


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """An image that a TPU VM can boot."""

    version: str
    generations: frozenset[str]
    ubuntu: str
    python: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """USD per chip and hour."""

    generation: str
    sizes: str  #: single (one board), pods or all
    region: str
    on_demand: float
    spot: float | None  #: None: no listed price


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """A Google Cloud region, with or without TPUs."""

    name: str
    continent: str
    zones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketLocation:
    """A bucket location that spans several regions."""

    name: str  #: US, NAM4, …
    kind: str  #: multi-region or dual-region
    continent: str
    regions: tuple[str, ...]  #: the regions of a dual-region
