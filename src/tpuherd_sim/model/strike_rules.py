"""Finds the weather rule that applies to a request."""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import World, log_event


def consume_rule(world: World, kind: str, now: float, **facts: str) -> Rule | None:
    """Return the first rule of this kind that matches the facts and chance; reduce its `times` by
    one.
    """
    for rule in list(world.weather.rules.values()):
        if rule.kind != kind or now < rule.since or not is_rule_match(rule.match, facts):
            continue
        if rule.until is not None and now >= rule.until:
            del world.weather.rules[rule.id]
            continue
        if rule.share < 1.0 and world.dice.random_fraction() >= rule.share:
            continue
        if rule.left is not None:
            left = rule.left - 1
            if left > 0:
                world.weather.rules[rule.id] = replace(rule, left=left)
            else:
                del world.weather.rules[rule.id]
        log_event(world, now, "weather.struck", rule=rule.id, kind=kind, **facts)
        return rule
    return None


def is_rule_match(match: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    """Whether every pattern matches the fact of its name; a missing fact matches none."""
    return all(
        name in facts and fnmatchcase(facts[name], pattern) for name, pattern in match.items()
    )
