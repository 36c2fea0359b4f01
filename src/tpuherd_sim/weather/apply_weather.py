"""Applies weather: starts rules and one-off events, and logs each."""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from tpuherd.catalogue import zones
from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import World, log_event, scale_duration, schedule_event
from tpuherd_sim.tpu import faults, set_capacity
from tpuherd_sim.weather import match_hosts
from tpuherd_sim.weather.arguments import InvalidWeather, similar_name_hint, split_arguments
from tpuherd_sim.weather.kinds import KINDS, RULE

ArgumentValues = Mapping[str, Any]  #: arguments as `arguments.fill_arguments` returns them
HitFacts = dict[str, Any]  #: facts of one effect
UNDO = "weather.undo"  #: the agenda's verb for undoing a temporary event
UNLIMITED = "unlimited"
#: Arguments that only choose targets or times, so they are not logged.
ASIDE = frozenset({"target", "zone", "type", "quota", "rule", "pick", "over"})


def apply_weather(world: World, name: str, given: ArgumentValues, now: float) -> list[HitFacts]:
    """Apply one kind of weather and return its hits; raise `InvalidWeather` if nothing matches."""
    if KINDS[name].family == RULE:
        return [begin_rule(world, name, given, now)]
    shared = {field: value for field, value in given.items() if field not in ASIDE}
    hits = []
    for hit in ONE_OFFS[name](world, given, now):
        hits.append({**hit, **shared})
        log_event(world, now, f"weather.{name}", **hits[-1])
        if "for" in given:
            end = now + scale_duration(world, given["for"])
            schedule_event(world, end, UNDO, KINDS[name].undo, given=AFTER.get(name, same_hit)(hit))
    return hits


def begin_rule(world: World, name: str, given: ArgumentValues, now: float) -> HitFacts:
    weather = world.weather
    weather.named += 1
    match, params = split_arguments(KINDS[name], given)
    until = now + scale_duration(world, given["for"]) if "for" in given else None
    rule = Rule(
        id=f"{name}-{weather.named}",
        kind=name,
        match=match,
        params=params,
        since=now,
        until=until,
        left=given.get("times"),
        share=given["share"],
    )
    weather.rules[rule.id] = rule
    if until is not None:
        schedule_event(world, until, UNDO, "clear", given={"rule": rule.id})
    hit = {"rule": rule.id, **given}
    log_event(world, now, "weather.rule", kind=name, **hit)
    return hit


def preempt_nodes(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    for key in match_hosts.matching_nodes(world, given):
        yield {"target": key}
        warning = {name: given[name] for name in ("notice_s", "flag", "acpi")}
        faults.preempt_node(world, key, now, **warning)


def maintain_nodes(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    for key in match_hosts.matching_nodes(world, given):
        yield {"target": key}
        notice = {name: given[name] for name in ("notice_s", "duration_s", "change_ip")}
        faults.maintain_node(world, key, now, **notice)


def set_health(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    for key in match_hosts.matching_nodes(world, given):
        yield {"target": key}
        faults.alter_node(world, key, now, health=given.get("health", "HEALTHY"))


def reboot_hosts(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    for key, worker in match_hosts.matching_hosts(world, given):
        yield {"target": f"{key}/w{worker}"}
        how = {name: given[name] for name in ("soft_s", "change_ip")}
        faults.reboot_host(world, key, worker, now, **how)


def crash_hosts(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    for key, worker in match_hosts.matching_hosts(world, given):
        yield {"target": f"{key}/w{worker}"}
        faults.lose_host(world, key, worker, now)


def make_host_change(fields: Callable[[ArgumentValues], dict[str, Any]]) -> "OneOffFunction":
    """Return an event that sets fields of hosts."""

    def stroke(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
        for key, worker in match_hosts.matching_hosts(world, given):
            yield {"target": f"{key}/w{worker}"}
            faults.alter_host(world, key, worker, now, **fields(given))

    return stroke


def set_pool_sizes(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    """Set the number of possible nodes; 0 in a drought."""
    many = given.get("nodes", 0)
    for zone in matching_zones(given["zone"]):
        key = f"{zone}/{given['type']}"
        if "over" in given and world.weather.capacity.get(key) != given["over"]:
            continue  # the capacity was changed again during the drought
        yield {
            "zone": zone,
            "type": given["type"],
            "before": world.weather.capacity.get(key, UNLIMITED),
        }
        limit = None if many == UNLIMITED else many
        set_capacity.set_capacity(world, zone, given["type"], limit, now)


def set_zone_quotas(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    for zone in matching_zones(given["zone"]):
        yield {"zone": zone, "quota": given["quota"]}
        set_capacity.set_quota(world, zone, given["quota"], given["limit"], now)


def clear_rules(world: World, given: ArgumentValues, now: float) -> Iterator[HitFacts]:
    rules = world.weather.rules
    pattern = "*" if given["rule"] == "all" else given["rule"]
    fitting = [name for name in rules if fnmatchcase(name, pattern)]
    if not fitting and pattern != "*":
        raise InvalidWeather(
            "rule", f"no rule {pattern!r} is in force{similar_name_hint(pattern, rules)}"
        )
    for name in fitting:
        yield {"rule": name}
        rules.pop(name)


def matching_zones(pattern: str) -> list[str]:
    return [zone for zone in zones() if fnmatchcase(zone, pattern)]


def same_hit(hit: HitFacts) -> HitFacts:
    """Return the hit: undoing it needs only the target."""
    return hit


OneOffFunction = Callable[[World, ArgumentValues, float], Iterator[HitFacts]]
ONE_OFFS: Mapping[str, OneOffFunction] = MappingProxyType(
    {
        "preempt": preempt_nodes,
        "maintain": maintain_nodes,
        "reboot": reboot_hosts,
        "crash": crash_hosts,
        "hang": make_host_change(lambda given: {"hung": True}),
        "unhang": make_host_change(lambda given: {"hung": False}),
        "network": make_host_change(lambda given: {"network": given["state"]}),
        "unreachable": make_host_change(lambda given: {"ssh": False}),
        "reachable": make_host_change(lambda given: {"ssh": True}),
        "fill-disk": make_host_change(lambda given: {"disk_full": True}),
        "free-disk": make_host_change(lambda given: {"disk_full": False}),
        "skew": make_host_change(lambda given: {"clock_skew_s": given["seconds"]}),
        "unhealthy": set_health,
        "healthy": set_health,
        "drought": set_pool_sizes,
        "capacity": set_pool_sizes,
        "quota": set_zone_quotas,
        "clear": clear_rules,
    }
)
#: The arguments for undoing, where the target alone is not enough.
AFTER: Mapping[str, Callable[[HitFacts], HitFacts]] = MappingProxyType(
    {
        "network": lambda hit: {**hit, "state": "up"},
        "skew": lambda hit: {**hit, "seconds": 0.0},
        "drought": lambda hit: {
            "zone": hit["zone"],
            "type": hit["type"],
            "nodes": hit["before"],
            "over": 0,
        },
    }
)
