"""Everything a world is, in one value that can be written down and read back."""

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuherd_sim.model.http_types import Response
from tpuherd_sim.model.records import Allocations, Node, Operation, QueuedResource, RecordChange
from tpuherd_sim.model.world_parts import AgendaItem, Dice, LogEntry, Settings

if TYPE_CHECKING:
    from tpuherd_sim.model.compute_state import Services
    from tpuherd_sim.model.weather_rules import Weather

#: Marks a field that follows from the others, or is only a convenience: it is not written down.
UNKEPT = {"derived": True}


LOG_LINES_MAX = 20_000


@dataclass(kw_only=True)
class World:
    """The one thing that changes. Only `handle` and `advance` change it."""

    settings: Settings
    dice: Dice
    services: "Services"
    weather: "Weather"
    nodes: dict[str, Node] = field(default_factory=dict)  #: by zone/id
    requests: dict[str, QueuedResource] = field(default_factory=dict)  #: by zone/id
    operations: dict[str, Operation] = field(default_factory=dict)  #: by zone/id
    agenda: list[AgendaItem] = field(default_factory=list)  #: a heap
    planned: int = 0
    log: list[LogEntry] = field(default_factory=list)
    forgotten: int = 0  #: lines that the log has had before its first
    books: Allocations = field(default_factory=Allocations)
    #: Keys of hosts that changed; the server empties it.
    touched: set[str] = field(default_factory=set, metadata=UNKEPT)
    #: Bytes of resources as last answered, with the record that they show.
    rendered: dict[tuple[str, str], tuple[object, bytes]] = field(
        default_factory=dict, metadata=UNKEPT
    )
    #: Lists as last answered, by what was asked; emptied when a node or a request changes.
    pages: dict[tuple[str, ...], Response] = field(default_factory=dict, metadata=UNKEPT)
    past: deque[RecordChange] = field(
        default_factory=deque, metadata=UNKEPT
    )  #: for lists out of date
    #: Where each node's number was found last: derived, so it is neither written down nor compared.
    places: dict[int, str] = field(default_factory=dict, compare=False, metadata={"derived": True})


def schedule_event(world: World, at: float, verb: str, target: str, **args: Any) -> None:
    """Put something on the agenda."""
    world.planned += 1
    heapq.heappush(world.agenda, AgendaItem(at, world.planned, verb, target, args))


def log_event(world: World, now: float, name: str, **facts: Any) -> None:
    """Write a line into the log; of a very long one the older half is forgotten."""
    world.log.append(LogEntry(at=now, name=name, facts=facts))
    if len(world.log) > LOG_LINES_MAX:
        del world.log[: LOG_LINES_MAX // 2]
        world.forgotten += LOG_LINES_MAX // 2


def log_length(world: World) -> int:
    """How many lines the log has had: the number of the next one."""
    return world.forgotten + len(world.log)


def log_entries_from(world: World, since: int) -> tuple[int, list[LogEntry]]:
    """The number of the first line from there on that is not forgotten, and all after it."""
    first = max(since, world.forgotten)
    return first, world.log[first - world.forgotten :]


def scale_duration(world: World, seconds: float) -> float:
    """How long a stretch of the cloud's lifecycle lasts in this world."""
    return seconds / world.settings.time_scale
