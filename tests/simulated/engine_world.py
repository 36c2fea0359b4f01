"""The simulated cloud of the engine tests: a world, virtual hosts, and watchers of requests."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify
from typing import Any

import httpx2

from tests.simulated.engine_fleet import Fleet
from tests.simulated.engine_hosts import Machine
from tests.simulated.engine_programs import Script
from tests.simulated.in_process_world import START
from tpuherd.catalogue import accelerators
from tpuherd.clock import LoopClock
from tpuherd_sim.handle import new_world
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world_parts import Settings

OWNER = "7kq"
TYPE = "v5p-16"  #: two hosts
ZONES = ("us-east5-a", "us-east5-b", "us-east5-c")
#: What ends all that lasts, wherever it struck.
MENDED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("unhang", {}),
    ("network", {"state": "up"}),
    ("reachable", {}),
    ("free-disk", {}),
    ("healthy", {}),
)


class VirtualHosts:
    """Keeps virtual machines as the host views say."""

    def __init__(self, live_world: LiveWorld, fleet: Fleet) -> None:
        self.live_world = live_world
        self.fleet = fleet
        self.machines: dict[str, Machine] = {}

    async def run(self) -> None:
        """Follow the world, without end."""
        while True:
            for key in sorted(await self.live_world.wait_for_changed_hosts()):
                self.see(key)

    def see(self, key: str) -> None:
        """One host changed."""
        tree = self.live_world.metadata_tree(key)  # first: it brings the world up to now
        view = self.live_world.host_view(key)
        machine = self.machines.get(key)
        if view is None:
            if machine is not None:
                del self.machines[key]
                machine.power_off()
            return
        if machine is None:
            machine = self.machines[key] = Machine(view, self.fleet)
        elif view != machine.view:
            machine.become(view)
        machine.hear(tree["instance"])


@dataclass(kw_only=True)
class ApiRequest:
    """One request that reached the world."""

    at: float
    method: str
    path: str
    query: str

    @property
    def reads(self) -> bool:
        return self.method == "GET"

    @property
    def creates(self) -> bool:
        return self.method == "POST" and self.path.endswith(("/nodes", "/queuedResources"))

    @property
    def name(self) -> str:
        """What is asked for, or of whom."""
        if self.creates:
            said = httpx2.QueryParams(self.query)
            return str(said.get("queuedResourceId") or said.get("nodeId"))
        return self.path.rpartition("/")[2]


@dataclass(kw_only=True)
class SimulatedCloud:
    """Everything but the engine."""

    seed: int = 1
    haste: float = 1.0
    scripts: Mapping[str, Script] = field(default_factory=dict)
    clock: LoopClock = field(default_factory=lambda: LoopClock(START))
    asked: list[ApiRequest] = field(default_factory=list)
    watchers: list[Callable[[ApiRequest], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = new_world(Settings(seed=self.seed, created=START, time_scale=self.haste))
        self.live_world = LiveWorld(self.world, self.clock)
        self.fleet = Fleet(clock=self.clock, scripts=dict(self.scripts))
        self.virtual_hosts = VirtualHosts(self.live_world, self.fleet)

    def now(self) -> float:
        """Seconds since the begin."""
        return self.clock.now() - START

    def note(self, request: Request) -> ApiRequest:
        """An engine asks the world."""
        asked = ApiRequest(
            at=self.clock.now(), method=request.method, path=request.path, query=request.query
        )
        self.asked.append(asked)
        for watcher in self.watchers:
            watcher(asked)
        return asked

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """A request of somebody else's."""
        path, _, query = target.partition("?")
        sent = b"" if body is None else json.dumps(body).encode()
        answer = self.live_world.handle_request(
            Request(method=method, path=path, query=query, body=sent)
        )
        assert answer.status == 200, (target, answer.body)
        return json.loads(answer.body)

    def weather(self, kind: str, **said: Any) -> bool:
        """Make weather; False if there is nothing that it could hit."""
        path = f"/sim/v1/weather/{kind}"
        body = json.dumps(said).encode()
        answer = self.live_world.handle_request(Request(method="POST", path=path, body=body))
        assert answer.status in (200, 400), answer.body
        return answer.status == 200

    def scenario(self, steps: list[dict[str, Any]]) -> None:
        """Weather to come."""
        self.ask("POST", "/sim/v1/scenario", {"steps": steps})

    def limit_chips(self, zone: str, chips: int) -> None:
        """The project's quota of spot nodes of our type, which the cloud counts in cores."""
        one = accelerators()[TYPE]
        limit = chips // one.chips * one.cores
        assert self.weather("quota", zone=zone, quota=one.generation, limit=limit)

    def calm(self) -> None:
        """Fair weather again: no rules, nothing to come, all hosts well, room everywhere."""
        self.ask("DELETE", "/sim/v1/scenario")
        if self.world.weather.rules:
            self.weather("clear", rule="all")
        for zone in ZONES:
            self.weather("capacity", zone=zone, nodes="unlimited")
        soon = self.clock.now() + 60.0
        agenda = self.world.agenda  # what is stuck for a month is stuck for a minute more
        late = {"request.suspended"}
        agenda[:] = [replace(d, at=min(d.at, soon)) if d.verb in late else d for d in agenda]
        heapify(agenda)
        for node in list(self.world.nodes):
            for kind, said in MENDED:
                self.weather(kind, target=node if kind == "healthy" else f"{node}/*", **said)

    def thaw(self) -> None:
        """No host stands still from now on."""
        for node in list(self.world.nodes):
            self.weather("unhang", target=f"{node}/*")

    def machines(self) -> list[Machine]:
        """All hosts that there are."""
        return list(self.virtual_hosts.machines.values())

    def nodes(self, slot: str = "") -> dict[str, str]:
        """Our nodes with their states; of one slot, if given."""
        return {
            node.id: node.state
            for node in self.world.nodes.values()
            if ours(node.id, slot) and node.state != "DELETING"
        }

    def requests(self, slot: str = "") -> dict[str, str]:
        """Our queued resources with their states."""
        return {
            one.id: one.state
            for one in self.world.requests.values()
            if ours(one.id, slot) and one.state != "DELETING"
        }

    def remains(self) -> list[str]:
        """All of ours that is left, whatever its state."""
        names = {one.id for one in self.world.nodes.values()}
        names |= {one.id for one in self.world.requests.values()}
        return sorted(filter(ours, names))

    async def live(self) -> None:
        """Run the world."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.live_world.run())
            group.create_task(self.virtual_hosts.run())


def ours(name: str, slot: str = "") -> bool:
    """Whether a name is one of our bids, or of one of their nodes."""
    return f"-{OWNER}" in name and name.startswith(f"{slot}-g" if slot else "")
