"""The whole state of a world in one value that can be saved and loaded."""

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tpuherd_sim.model.compute_state import Services
from tpuherd_sim.model.http_types import Response
from tpuherd_sim.model.records import Allocations, Node, Operation, QueuedResource, RecordChange
from tpuherd_sim.model.weather_rules import Weather
from tpuherd_sim.model.world_parts import AgendaItem, Dice, LogEntry, Settings

#: Marks a field that can be derived from others, or is only a cache: it is not saved.
UNKEPT = {"derived": True}


LOG_LINES_MAX = 20_000


@dataclass(kw_only=True)
class World:
    """The mutable state of a world; only `handle` changes it."""

    settings: Settings
    dice: Dice
    services: Services
    weather: Weather
    nodes: dict[str, Node] = field(default_factory=dict)  #: by zone/id
    requests: dict[str, QueuedResource] = field(default_factory=dict)  #: by zone/id
    operations: dict[str, Operation] = field(default_factory=dict)  #: by zone/id
    agenda: list[AgendaItem] = field(default_factory=list)  #: a heap
    planned: int = 0
    log: list[LogEntry] = field(default_factory=list)
    forgotten: int = 0  #: number of dropped lines at the beginning of the log
    books: Allocations = field(default_factory=Allocations)
    #: Keys of changed hosts; the server empties it.
    touched: set[str] = field(default_factory=set, metadata=UNKEPT)
    #: Cached bytes of rendered resources, with the record that they show.
    rendered: dict[tuple[str, str], tuple[object, bytes]] = field(
        default_factory=dict, metadata=UNKEPT
    )
    #: Cached lists by query; emptied when a node or a request changes.
    pages: dict[tuple[str, ...], Response] = field(default_factory=dict, metadata=UNKEPT)
    past: deque[RecordChange] = field(default_factory=deque, metadata=UNKEPT)  #: for outdated lists
    #: Names and addresses of all hosts of a node's slices, by its number; emptied when one changes.
    peers: dict[int, tuple[tuple[str, str], ...]] = field(
        default_factory=dict, compare=False, metadata=UNKEPT
    )
    #: The last known index of each node's number: derived, so neither saved nor compared.
    places: dict[int, str] = field(default_factory=dict, compare=False, metadata={"derived": True})


def schedule_event(world: World, at: float, verb: str, target: str, **args: Any) -> None:
    world.planned += 1
    heapq.heappush(world.agenda, AgendaItem(at, world.planned, verb, target, args))


def log_event(world: World, now: float, name: str, **facts: Any) -> None:
    """Append a line to the log; drop the older half of a very long one."""
    world.log.append(LogEntry(at=now, name=name, facts=facts))
    if len(world.log) > LOG_LINES_MAX:
        del world.log[: LOG_LINES_MAX // 2]
        world.forgotten += LOG_LINES_MAX // 2


def log_length(world: World) -> int:
    """Return the number of the next line, counting dropped ones."""
    return world.forgotten + len(world.log)


def log_entries_from(world: World, since: int) -> tuple[int, list[LogEntry]]:
    """Return the number of the first remaining line from `since` on, and all lines after it."""
    first = max(since, world.forgotten)
    return first, world.log[first - world.forgotten :]


def scale_duration(world: World, seconds: float) -> float:
    """Return how long a duration of the cloud's lifecycle takes in this world."""
    return seconds / world.settings.time_scale
