"""What the tables speak of."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """One size of TPU that can be asked for, such as v4-16."""

    type: str
    generation: str
    enum: str | None  #: the API's name of the generation; None: not offered by this API (GKE only)
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
    """One kind of chip."""

    name: str  #: v2 v3 v4 v5e v5p v6e tpu7x
    prefix: str  #: what its types begin with: v5litepod
    enum: str | None
    cores_per_chip: int
    devices_per_chip: int  #: as JAX counts them
    hbm_gib_per_chip: int
    hbm_gb_per_s: int
    bf16_tflops_per_chip: int
    torus: int  #: dimensions of its interconnect
    pci: str  #: device id; the vendor is 0x1ae0
    subsystem: str
    device: str  #: accel or vfio: which files in /dev the chips have
    machine_types: Mapping[int, str]  #: by the chips of a host; without an entry: not known
    runtime: str  #: the image that Google documents for it


@dataclass(frozen=True, kw_only=True, slots=True)
class Zone:
    """A zone that has TPUs."""

    name: str
    region: str
    types: frozenset[str]  #: of accelerators


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
    spot: float | None  #: None: no price was listed


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """A place of Google's, with TPUs or without."""

    name: str
    continent: str
    zones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketLocation:
    """Where a bucket can be that is not in one region."""

    name: str  #: US, NAM4, …
    kind: str  #: multi-region or dual-region
    continent: str
    regions: tuple[str, ...]  #: of a dual-region
