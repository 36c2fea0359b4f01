"""What the names of TPU quotas mean: generation, size, tier, unit and place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tpuherd.catalogue import Accelerator
from tpuherd.jobfile.grants import CHEAP

NAME = re.compile(
    r"TPU(V2s|V3s|V4s|V5s|V5P|V6E)(Preemptible)?(Pod|LitepodServing|Litepod)?"
    r"PerProjectPer(Zone|Region)ForTPUAPI"
)
#: The generation of each stem, and what its quota counts.
STEMS: Mapping[str, tuple[str, str]] = {
    "V2s": ("v2", "cores"),
    "V3s": ("v3", "cores"),
    "V4s": ("v4", "cores"),
    "V5s": ("v5e", "chips"),
    "V5P": ("v5p", "cores"),
    "V6E": ("v6e", "chips"),
}
#: Generations whose single boards have a quota of their own.
SPLIT = frozenset(("v2", "v3", "v5e"))
ON_DEMAND, SPOT = "on-demand", "spot"


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaName:
    """One kind of quota of Cloud TPU."""

    id: str
    generation: str
    tier: str  #: spot (preemptible, too) or on-demand
    unit: str  #: chips or cores
    sizes: str  #: single (one board), pods or all
    by_region: bool

    def covers(self, accelerator: Accelerator, tier: str) -> bool:
        """Whether a node of this type and tier counts."""
        if accelerator.generation != self.generation or tier == "reserved":
            return False
        single = "single" if accelerator.hosts == 1 else "pods"
        return self.sizes in ("all", single) and (tier in CHEAP) == (self.tier == SPOT)

    def amount(self, accelerator: Accelerator) -> int:
        return accelerator.cores if self.unit == "cores" else accelerator.chips

    def place(self, zone: str) -> str:
        return zone.rpartition("-")[0] if self.by_region else zone


def parse_quota_name(id: str) -> QuotaName | None:
    """Return what a quota counts; None if herd does not know it."""
    match = NAME.fullmatch(id)
    if match is None:
        return None
    generation, unit = STEMS[match[1]]
    sizes = "all"
    if generation in SPLIT:
        pods = match[3] == "Pod" or match[3] == "Litepod"
        sizes = "pods" if pods else "single"
    return QuotaName(
        id=id,
        generation=generation,
        tier=SPOT if match[2] else ON_DEMAND,
        unit=unit,
        sizes=sizes,
        by_region=match[4] == "Region",
    )
