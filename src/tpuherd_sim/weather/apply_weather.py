"""Doing what was asked: rules come into force, strokes hit, and each leaves a line in the log."""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from tpuherd.catalogue import zones
from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import World, note, plan, scaled
from tpuherd_sim.tpu import faults, set_capacity
from tpuherd_sim.weather import match_hosts
from tpuherd_sim.weather.arguments import Unfit, near, split
from tpuherd_sim.weather.kinds import KINDS, RULE

Given = Mapping[str, Any]  #: arguments as `arguments.fill` leaves them
Hit = dict[str, Any]  #: facts of one thing that is done
UNDO = "weather.undo"  #: the agenda's verb for the end of what lasts
UNLIMITED = "unlimited"
#: Only said to choose whom or how long, and so no facts of the deed.
ASIDE = frozenset({"target", "zone", "type", "quota", "rule", "pick", "over"})


def act(world: World, name: str, given: Given, now: float) -> list[Hit]:
    """Do one thing of the table and say what was hit; raises `Unfit` where nothing fits."""
    if KINDS[name].family == RULE:
        return [begin(world, name, given, now)]
    shared = {field: value for field, value in given.items() if field not in ASIDE}
    hits = []
    for hit in STROKES[name](world, given, now):
        hits.append({**hit, **shared})
        note(world, now, f"weather.{name}", **hits[-1])
        if "for" in given:
            end = now + scaled(world, given["for"])
            plan(world, end, UNDO, KINDS[name].undo, given=AFTER.get(name, same)(hit))
    return hits


def begin(world: World, name: str, given: Given, now: float) -> Hit:
    """A rule comes into force."""
    weather = world.weather
    weather.named += 1
    match, params = split(KINDS[name], given)
    until = now + scaled(world, given["for"]) if "for" in given else None
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
        plan(world, until, UNDO, "clear", given={"rule": rule.id})
    hit = {"rule": rule.id, **given}
    note(world, now, "weather.rule", kind=name, **hit)
    return hit


def preempt(world: World, given: Given, now: float) -> Iterator[Hit]:
    """Spot capacity is taken back."""
    for key in match_hosts.nodes(world, given):
        yield {"target": key}
        warning = {name: given[name] for name in ("notice_s", "flag", "acpi")}
        faults.preempt(world, key, now, **warning)


def maintain(world: World, given: Given, now: float) -> Iterator[Hit]:
    """Maintenance is announced."""
    for key in match_hosts.nodes(world, given):
        yield {"target": key}
        notice = {name: given[name] for name in ("notice_s", "duration_s", "change_ip")}
        faults.maintain(world, key, now, **notice)


def health(world: World, given: Given, now: float) -> Iterator[Hit]:
    """Nodes report how they are."""
    for key in match_hosts.nodes(world, given):
        yield {"target": key}
        faults.alter_node(world, key, now, health=given.get("health", "HEALTHY"))


def reboot(world: World, given: Given, now: float) -> Iterator[Hit]:
    """Hosts start anew."""
    for key, worker in match_hosts.hosts(world, given):
        yield {"target": f"{key}/w{worker}"}
        faults.reboot(world, key, worker, now)


def crash(world: World, given: Given, now: float) -> Iterator[Hit]:
    """Hosts lose their power."""
    for key, worker in match_hosts.hosts(world, given):
        yield {"target": f"{key}/w{worker}"}
        faults.lose_host(world, key, worker, now)


def altered(fields: Callable[[Given], dict[str, Any]]) -> "Stroke":
    """A stroke after which hosts are otherwise in some respect."""

    def stroke(world: World, given: Given, now: float) -> Iterator[Hit]:
        for key, worker in match_hosts.hosts(world, given):
            yield {"target": f"{key}/w{worker}"}
            faults.alter_host(world, key, worker, now, **fields(given))

    return stroke


def pools(world: World, given: Given, now: float) -> Iterator[Hit]:
    """There can be so many nodes, in a drought none."""
    many = given.get("nodes", 0)
    for zone in places(given["zone"]):
        key = f"{zone}/{given['type']}"
        if "over" in given and world.weather.capacity.get(key) != given["over"]:
            continue  # somebody has said something else since the drought began
        yield {
            "zone": zone,
            "type": given["type"],
            "before": world.weather.capacity.get(key, UNLIMITED),
        }
        limit = None if many == UNLIMITED else many
        set_capacity.set_capacity(world, zone, given["type"], limit, now)


def quota(world: World, given: Given, now: float) -> Iterator[Hit]:
    """The project may have so much."""
    for zone in places(given["zone"]):
        yield {"zone": zone, "quota": given["quota"]}
        set_capacity.set_quota(world, zone, given["quota"], given["limit"], now)


def clear(world: World, given: Given, now: float) -> Iterator[Hit]:
    """Rules are over."""
    rules = world.weather.rules
    pattern = "*" if given["rule"] == "all" else given["rule"]
    fitting = [name for name in rules if fnmatchcase(name, pattern)]
    if not fitting and pattern != "*":
        raise Unfit("rule", f"no rule {pattern!r} is in force{near(pattern, rules)}")
    for name in fitting:
        yield {"rule": name}
        rules.pop(name)


def places(pattern: str) -> list[str]:
    """The zones that fit."""
    return [zone for zone in zones() if fnmatchcase(zone, pattern)]


def same(hit: Hit) -> Hit:
    """The undoing needs to know whom, and nothing more."""
    return hit


Stroke = Callable[[World, Given, float], Iterator[Hit]]
STROKES: Mapping[str, Stroke] = MappingProxyType(
    {
        "preempt": preempt,
        "maintain": maintain,
        "reboot": reboot,
        "crash": crash,
        "hang": altered(lambda given: {"hung": True}),
        "unhang": altered(lambda given: {"hung": False}),
        "network": altered(lambda given: {"network": given["state"]}),
        "unreachable": altered(lambda given: {"ssh": False}),
        "reachable": altered(lambda given: {"ssh": True}),
        "fill-disk": altered(lambda given: {"disk_full": True}),
        "free-disk": altered(lambda given: {"disk_full": False}),
        "skew": altered(lambda given: {"clock_skew_s": given["seconds"]}),
        "unhealthy": health,
        "healthy": health,
        "drought": pools,
        "capacity": pools,
        "quota": quota,
        "clear": clear,
    }
)
#: What the undoing is told where whom it concerns is not enough.
AFTER: Mapping[str, Callable[[Hit], Hit]] = MappingProxyType(
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
