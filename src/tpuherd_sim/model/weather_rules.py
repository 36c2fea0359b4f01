"""Weather rules in force, which the model checks where something can go wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One kind of bad weather: what it matches, how often and until when it applies."""

    id: str
    kind: str  #: a name from `kinds.KINDS`
    match: Mapping[str, str]  #: zone, type, node, method, …: shell patterns; absent = any
    params: Mapping[str, Any]
    since: float
    until: float | None = None
    left: int | None = None  #: how many times more; None = unlimited
    share: float = 1.0  #: the probability that it applies when it matches


@dataclass(kw_only=True)
class Weather:
    """The rules in force and the capacity of each pool."""

    rules: dict[str, Rule] = field(default_factory=dict)
    named: int = 0  #: number of rules so far, for their names
    capacity: dict[str, int] = field(
        default_factory=dict
    )  #: "zone/type" or "zone/*": number of nodes that can exist
