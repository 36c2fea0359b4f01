"""Rules in force: data that the model asks, at fixed places, whether something goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One kind of bad weather, for whom, how often and until when."""

    id: str
    kind: str  #: a name out of `kinds.KINDS`
    match: Mapping[str, str]  #: zone, type, node, method, …: shell patterns; absent = any
    params: Mapping[str, Any]
    since: float
    until: float | None = None
    left: int | None = None  #: how many times more; None = without end
    share: float = 1.0  #: the chance that it strikes when it could


@dataclass(kw_only=True)
class Weather:
    """The rules in force, the pools of capacity, and what is still to come of a scenario."""

    rules: dict[str, Rule] = field(default_factory=dict)
    named: int = 0  #: how many rules there have been, for their names
    capacity: dict[str, int] = field(
        default_factory=dict
    )  #: "zone/type" or "zone/*": nodes there can be
