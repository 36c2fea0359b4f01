"""Rules in force: data that the model asks, at fixed places, whether something goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from tpuherd.sim.tpu.world import World, note


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


def strike(world: World, kind: str, now: float, **facts: str) -> Rule | None:
    """The first rule of this kind that fits the facts and the dice; uses it up by one."""
    for rule in list(world.weather.rules.values()):
        if rule.kind != kind or now < rule.since or not fits(rule.match, facts):
            continue
        if rule.until is not None and now >= rule.until:
            del world.weather.rules[rule.id]
            continue
        if rule.share < 1.0 and world.dice.share() >= rule.share:
            continue
        if rule.left is not None:
            left = rule.left - 1
            if left > 0:
                world.weather.rules[rule.id] = replace(rule, left=left)
            else:
                del world.weather.rules[rule.id]
        note(world, now, "weather.struck", rule=rule.id, kind=kind, **facts)
        return rule
    return None


def fits(match: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    """Whether every pattern is met by the fact of its name; a fact that is not given meets none."""
    return all(
        name in facts and fnmatchcase(facts[name], pattern) for name, pattern in match.items()
    )
