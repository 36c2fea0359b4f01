"""What a user may have and where: declared by hand, or read from the email that grants it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuherd.catalogue import (
    Accelerator,
    accelerators,
    generations,
    prices,
    zones,
)

#: `32 on-demand Cloud TPU v4 chips in zone us-central2-b`, `5 … v3-8 device(s) in zone …`
LINE = re.compile(
    r"([0-9][0-9,]*)\s+(spot|preemptible|on-demand|reserved)\s+Cloud\s+TPU\s+(v[0-9][a-z0-9]*(?:-[0-9]+)?)\s+"
    r"(chips?|devices?(?:\(s\))?|cores?)\s+in\s+(?:the\s+)?zone\s+([a-z]+-[a-z]+[0-9]+-[a-z])",
    re.I,
)
QUOTE = re.compile(r"(?m)^[ \t>]+|[*_`]+")  #: quoting and emphasis added by mail programs
#: Spot and preemptible TPUs share one quota.
CHEAP = frozenset(("spot", "preemptible"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """TPUs of one kind in one zone."""

    zone: str
    type: str  #: a generation (v4, v5e) or one size of it (v3-8)
    tier: str
    chips: int | None = None  #: in total; None: not known
    free: bool = False  #: not billed

    def covers_node(self, zone: str, accelerator: Accelerator, tier: str) -> bool:
        """Whether the grant allows one such node."""
        same_tier = tier == self.tier or {tier, self.tier} <= CHEAP
        same_type = self.type in (accelerator.generation, accelerator.type)
        room = self.chips is None or accelerator.chips <= self.chips
        return zone == self.zone and same_tier and same_type and room


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """What one project may use."""

    everything: bool = False  #: every zone with the type: a world, or the user agreed
    grants: tuple[Grant, ...] = ()
    buckets: Mapping[str, str] = field(default_factory=dict)  #: known bucket locations
    creates_per_min: int = 60
    hedge: int | None = None


def parse_mail_grants(text: str) -> list[Grant]:
    """Return the distinct grants named in an email."""
    plain = " ".join(QUOTE.sub("", text).split())
    found: dict[Grant, None] = {}
    for many, tier, type_, unit, zone in LINE.findall(plain):
        type_, number = type_.lower(), int(many.replace(",", ""))
        chips = number
        if unit.lower().startswith("device"):
            chips = number * accelerators()[type_].chips if type_ in accelerators() else number
        elif unit.lower().startswith("core"):
            kind = generations().get(type_)
            chips = number // (kind.cores_per_chip if kind else 1)
        grant = Grant(zone=zone.lower(), type=type_, tier=tier.lower(), chips=chips, free=True)
        found[grant] = None
    return list(found)


def grant_document(grant: Grant) -> dict[str, Any]:
    document: dict[str, Any] = {"zone": grant.zone, "type": grant.type, "tier": grant.tier}
    if grant.chips is not None:
        document["chips"] = grant.chips
    return {**document, **({"free": True} if grant.free else {})}


def parse_bucket(place: str) -> str:
    """Return the bucket of gs://bucket/path, or ""."""
    return place[5:].partition("/")[0] if place.startswith("gs://") else ""


def hourly_price(zone: str, accelerator: Accelerator, tier: str) -> float | None:
    """Return the list price of a node in dollars per hour; None: not known."""
    region = zone.rpartition("-")[0]
    size = "single" if accelerator.hosts == 1 else "pods"
    for row in prices():
        if (row.generation, row.region) == (accelerator.generation, region) and row.sizes in (
            "all",
            size,
        ):
            chip = row.spot if tier in CHEAP else row.on_demand
            return None if chip is None else round(chip * accelerator.chips, 4)
    return None


def find_places(
    types: Iterable[str], tiers: Iterable[str], allowed: Allowance
) -> list[tuple[str, Accelerator, str, bool]]:
    """Return all allowed (zone, type, tier) and whether each is free, most preferred first."""
    found = []
    chosen = [accelerators()[name] for name in types]
    tiers = tuple(tiers)
    for one in chosen:
        for tier in tiers:
            for zone in granted_zones(one, tier, allowed):
                free = any(g.free and g.covers_node(zone, one, tier) for g in allowed.grants)
                found.append((zone, one, tier, free))
    return found


def granted_zones(accelerator: Accelerator, tier: str, allowed: Allowance) -> list[str]:
    named = {one.zone for one in allowed.grants if one.covers_node(one.zone, accelerator, tier)}
    if allowed.everything:
        named |= {one.name for one in zones().values() if accelerator.type in one.types}
    return sorted(named)


def other_tiers(types: Iterable[str], tiers: Iterable[str], allowed: Allowance) -> str:
    """Describe grants for the same types at other tiers; "" if there are none."""
    asked = set(tiers)
    found = dict.fromkeys(
        f"{grant.tier} {name} in {grant.zone}"
        for name in types
        for grant in allowed.grants
        if grant.tier not in asked
        and grant.covers_node(grant.zone, accelerators()[name], grant.tier)
    )
    return ", ".join(found)
