"""What the users of one project agree on: each one's share, and the quotas that they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedQuota:
    """Chips of one kind in one zone."""

    zone: str
    type: str  #: a generation (v4), or one size of it (v4-8)
    tier: str  #: spot and preemptible are one
    chips: int

    @property
    def title(self) -> str:
        return f"{self.tier} {self.type} in {self.zone}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabShares:
    """Without quotas nobody waits for anybody; a user without a weight has weight 1."""

    agreed: bool = False  #: the users have said so: it holds for one user alone, too
    weights: Mapping[str, float] = field(default_factory=dict)
    quotas: tuple[SharedQuota, ...] = ()


NO_SHARES = LabShares()
