"""Finds the nodes and hosts that match a target pattern."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from tpuherd_sim.model.records import HOLDING, Node
from tpuherd_sim.model.world import World
from tpuherd_sim.weather.arguments import InvalidWeather

HostTarget = tuple[str, int]  #: a node's key and one of its workers
Hit = TypeVar("Hit", str, HostTarget)


def matching_nodes(world: World, given: Mapping[str, Any]) -> list[str]:
    """Return the keys of the matching nodes, in order."""
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
    """Return the matching hosts, in order; a node's name means all of its hosts."""
    pattern = given["target"].split("/")
    fitting = [
        (key, worker)
        for key, worker in all_hosts(world)
        if is_spelled(pattern, *host_spellings(world.nodes[key], worker))
        and is_alive(world.nodes[key])
    ]
    return pick_targets(world, given, fitting)


def all_hosts(world: World) -> Iterator[HostTarget]:
    """Yield all hosts in order."""
    for key in sorted(world.nodes):
        for worker in world.nodes[key].workers:
            yield key, worker.index


def host_spellings(node: Node, worker: int) -> tuple[list[str], ...]:
    """Return all names of a host."""
    last = f"w{worker}"
    return [node.id], [node.zone, node.id], [node.id, last], [node.zone, node.id, last]


def is_spelled(pattern: list[str], *spellings: list[str]) -> bool:
    """Whether one of the spellings matches part by part, so a star does not match a slash."""
    return any(
        len(spelling) == len(pattern) and all(map(fnmatchcase, spelling, pattern))
        for spelling in spellings
    )


def is_alive(node: Node) -> bool:
    """Whether the node has machines that weather can affect."""
    return node.state in HOLDING and node.state != "DELETING"


def pick_targets(world: World, given: Mapping[str, Any], fitting: list[Hit]) -> list[Hit]:
    """Return all matches, or a random choice of `pick`; raise InvalidWeather if there are none."""
    if not fitting:
        raise InvalidWeather("target", no_match_text(world, given["target"]))
    many = given.get("pick", len(fitting))
    left = list(fitting)
    picked: list[Hit] = []
    while left and len(picked) < many < len(fitting):
        picked.append(left.pop(int(world.dice.random_fraction() * len(left))))
    return sorted(picked) or fitting


def no_match_text(world: World, target: str) -> str:
    """Explain why nothing matches, with the nearest name."""
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
