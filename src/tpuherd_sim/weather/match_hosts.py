"""Whom a stroke hits: patterns of nodes and hosts against what the world has."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from tpuherd_sim.model.records import HOLDING, Node
from tpuherd_sim.model.world import World
from tpuherd_sim.weather.arguments import InvalidWeather

HostTarget = tuple[str, int]  #: a node's key and a worker of it
Hit = TypeVar("Hit", str, HostTarget)


def matching_nodes(world: World, given: Mapping[str, Any]) -> list[str]:
    """The keys of the nodes that fit, in order."""
    pattern = given["target"].split("/")
    fitting = [
        node.key
        for node in world.nodes.values()
        if is_spelled(pattern, [node.id], [node.zone, node.id])
    ]
    return pick_targets(
        world, given, [key for key in sorted(fitting) if is_alive(world.nodes[key])]
    )


def matching_hosts(world: World, given: Mapping[str, Any]) -> list[HostTarget]:
    """The hosts that fit, in order; a node's name stands for all of its hosts."""
    pattern = given["target"].split("/")
    fitting = [
        (key, worker)
        for key, worker in all_hosts(world)
        if is_spelled(pattern, *host_spellings(world.nodes[key], worker))
        and is_alive(world.nodes[key])
    ]
    return pick_targets(world, given, fitting)


def all_hosts(world: World) -> Iterator[HostTarget]:
    """All hosts in order."""
    for key in sorted(world.nodes):
        for worker in world.nodes[key].workers:
            yield key, worker.index


def host_spellings(node: Node, worker: int) -> tuple[list[str], ...]:
    """Everything a host may be called."""
    last = f"w{worker}"
    return [node.id], [node.zone, node.id], [node.id, last], [node.zone, node.id, last]


def is_spelled(pattern: list[str], *spellings: list[str]) -> bool:
    """Whether one of the spellings fits, part by part: a star does not reach over a slash."""
    return any(
        len(spelling) == len(pattern) and all(map(fnmatchcase, spelling, pattern))
        for spelling in spellings
    )


def is_alive(node: Node) -> bool:
    """Whether it has machines that the weather can do something to."""
    return node.state in HOLDING and node.state != "DELETING"


def pick_targets(world: World, given: Mapping[str, Any], fitting: list[Hit]) -> list[Hit]:
    """All, or as many as are to be picked; none is a refusal."""
    if not fitting:
        raise InvalidWeather("target", no_match_text(world, given["target"]))
    many = given.get("pick", len(fitting))
    left = list(fitting)
    picked: list[Hit] = []
    while left and len(picked) < many < len(fitting):
        picked.append(left.pop(int(world.dice.random_fraction() * len(left))))
    return sorted(picked) or fitting


def no_match_text(world: World, target: str) -> str:
    """Why nothing fits, and what is near."""
    last = target.split("/")
    for node in world.nodes.values():
        if is_spelled(last, [node.id], [node.zone, node.id]) and not is_alive(node):
            return f"{node.key} is {node.state}"
    known = [spelling for node in world.nodes.values() for spelling in (node.id, node.key)]
    known += [
        "/".join(n)
        for key, worker in all_hosts(world)
        for n in host_spellings(world.nodes[key], worker)[2:]
    ]
    close = get_close_matches(target, known, 1, 0.65)
    return f"no node or host matches {target!r}" + (
        f"; did you mean {close[0]!r}?" if close else ""
    )
