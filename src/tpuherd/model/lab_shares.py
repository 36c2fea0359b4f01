"""What the users of one project agree on: each one's share, and the quotas that they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHARES = "shares"  #: the setting {"users": {NAME: WEIGHT}} of a store
WEIGHT_MIN, WEIGHT_MAX = 0.01, 100.0


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


def parse_shares(document: Mapping[str, Any] | None) -> LabShares:
    """The users' weights, as the store has them; what is no weight is left out."""
    users = (document or {}).get("users")
    found = users if isinstance(users, dict) else {}
    weights = {user: float(one) for user, one in found.items() if is_weight(one)}
    return LabShares(agreed=bool(weights), weights=weights)


def is_weight(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return WEIGHT_MIN <= value <= WEIGHT_MAX


def set_weight(
    document: Mapping[str, Any] | None, user: str, weight: float
) -> dict[str, dict[str, float]]:
    """The setting with this weight; a weight of 1, which everybody has, is not kept."""
    users = {**parse_shares(document).weights, user: weight}
    return {"users": {name: one for name, one in users.items() if one != 1.0}}
