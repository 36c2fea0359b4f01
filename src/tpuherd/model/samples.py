"""Series over time: what hosts, chips and scripts did, as samples and as thinned points."""

from dataclasses import dataclass
from typing import NamedTuple

#: Values of a host, in the order in which they are stored.
HOST_VALUES = (
    "cpu", "ram_used", "ram_total", "disk_free", "disk_total", "net_in", "net_out",
)  # fmt: skip
#: Values of each of its chips.
CHIP_VALUES = ("hbm_used", "hbm_total", "duty")
#: Values of a slot that every script has which reports steps.
STEP, STEP_RATE = "step", "step_rate"


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesName:
    """What a series is about."""

    job: str
    slot: str
    name: str  #: loss, step_rate, cpu, hbm_used, …
    host: str = ""  #: gpt-0-g1-7kq/w3; "": it belongs to the slot
    chip: int | None = None  #: None: it belongs to the host or the slot


class SeriesPoint(NamedTuple):
    """One point, which may stand for many samples. There are too many of them for a dataclass.

    Scripts may report values that are no numbers: then `mean` is NaN or infinite, and so are `low`
    and `high` if there is no other value.
    """

    at: float
    low: float
    mean: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    name: SeriesName
    points: tuple[SeriesPoint, ...]  #: in the order of their times


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipSample:
    """One chip at one moment. None: not known."""

    hbm_used: int | None = None  #: bytes, like the next
    hbm_total: int | None = None
    duty_percent: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSample:
    """One host at one moment. None: not known."""

    host: str  #: gpt-0-g1-7kq/w3
    job: str
    slot: str
    at: float
    cpu_percent: float | None = None
    ram_used: int | None = None  #: bytes, like the next three
    ram_total: int | None = None
    disk_free: int | None = None  #: where the login's home is
    disk_total: int | None = None
    net_in: float | None = None  #: bytes per second, without the loopback device
    net_out: float | None = None
    chips: tuple[ChipSample, ...] = ()
    why: str = ""  #: why values of chips are missing
