"""Simulated hosts as the hosts of a node, and the weather that affects them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tests.conformance.world import World, started, until
from tpuherd.clock import WallClock
from tpuherd.cloud import parse
from tpuherd.cloud.auth import AnonymousAuth
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.rest import RestClient, world_http_client
from tpuherd.ports import Host
from tpuherd.remote.connection_pool import HostDirectory
from tpuherd.remote.resolve_hosts import CloudNodeDirectory
from tpuherd.settings.endpoints import ServiceUrls

ZONE = "us-central2-b"
TYPES = {1: "v4-8", 2: "v4-16", 4: "v4-32", 8: "v4-64"}


class Sim:
    """A world with hosts."""

    login = "vlialin"

    def __init__(self, world: World) -> None:
        self.world = world

    def node(self, name: str, workers: int = 1) -> list[Host]:
        self.world.node(ZONE, name, acceleratorType=TYPES[workers])
        return self.hosts(name)

    def hosts(self, name: str) -> list[Host]:
        node = parse.parse_node(self.world.ask("GET", self._path(name)))
        port = int(self.world.facts["ssh_port"])
        return [parse.worker_host(node, worker, port) for worker in range(len(node.workers))]

    def recreate(self, name: str) -> list[Host]:
        workers = len(self.hosts(name))
        self._weather("recycle-ip", times=1)
        self.gone(name)
        return self.node(name, workers)

    def gone(self, name: str) -> None:
        """Delete a node, and wait until it is."""
        self.world._delete(self._path(name))
        nodes = f"v2/projects/demo/locations/{ZONE}/nodes"

        def away() -> bool:
            names = [node["name"] for node in self.world.ask("GET", nodes).get("nodes", ())]
            return not any(one.endswith(f"/{name}") for one in names)

        until(away, f"{name} to be gone", seconds=60)

    def refuse(self, host: Host) -> None:
        self._weather("unreachable", target=host.name)

    def silence(self, host: Host) -> None:
        self._weather("network", target=host.name, state="down")

    def hang(self, host: Host) -> None:
        self._weather("hang", target=host.name)

    def reboot(self, host: Host) -> None:
        self._weather("reboot", target=host.name)

    def cut(self, host: Host) -> None:
        self._weather("unreachable", target=host.name)
        self._weather("reachable", target=host.name)

    def move(self, host: Host) -> None:
        before = self.hosts(host.node)[host.worker].external_ip
        self._weather("maintain", target=host.node, notice_s=0, duration_s=1)

        def moved() -> bool:
            node = self.world.ask("GET", self._path(host.node))
            now = self.hosts(host.node)[host.worker].external_ip
            return node["state"] == "READY" and now not in (None, before)

        until(moved, "maintenance to be over", seconds=60)

    def _weather(self, kind: str, **arguments: Any) -> None:
        self.world.ask("POST", f"sim/v1/weather/{kind}", arguments)

    def _path(self, name: str) -> str:
        return f"v2/projects/demo/locations/{ZONE}/nodes/{name}"

    @asynccontextmanager
    async def register(self) -> AsyncIterator[HostDirectory]:
        urls = ServiceUrls(tpu=self.world.url, compute=self.world.url)
        async with world_http_client() as http:
            cloud = Cloud(RestClient(http, urls, AnonymousAuth()), "demo")
            directory = CloudNodeDirectory(cloud, int(self.world.facts["ssh_port"]), WallClock())
            await directory.list_nodes()
            yield directory


@contextmanager
def sim() -> Iterator[Sim]:
    """One, in a hurry."""
    with started("--no-internet", "--time-scale", "600") as world:
        yield Sim(world)
