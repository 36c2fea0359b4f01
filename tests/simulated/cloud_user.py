"""Our cloud client, bound to a world in this process and in virtual time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, TypeVar

import httpx2

from tests.simulated.in_process_world import START
from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.cloud.auth import AnonymousAuth
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.rest import RestClient, world_http_client
from tpuherd.remote.resolve_hosts import CloudNodeDirectory
from tpuherd.settings.endpoints import ServiceUrls
from tpuherd_sim.handle import handle_request, new_world
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings

T = TypeVar("T")
ZONE = "us-central2-b"
URL = "http://world"


class Wire(httpx2.AsyncBaseTransport):
    """Carries requests to a world by a call, at the loop's time."""

    def __init__(self, world: World, clock: LoopClock) -> None:
        self.world = world
        self.clock = clock
        self.asked: list[str] = []
        self.between: Callable[[httpx2.Request], None] = lambda request: None
        self.instead: Callable[[httpx2.Request], httpx2.Response | None] = lambda request: None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        self.between(request)
        if (other := self.instead(request)) is not None:
            return other
        answer = handle_request(
            self.world,
            Request(
                method=request.method,
                path=request.url.path,
                query=request.url.query.decode(),
                headers={name.lower(): value for name, value in request.headers.items()},
                body=await request.aread(),
            ),
            self.clock.now(),
        )
        await asyncio.sleep(answer.delay_s)
        if answer.lost:
            raise httpx2.ReadError("the connection was cut", request=request)
        headers = [*answer.headers, ("date", formatdate(self.clock.now(), usegmt=True))]
        return httpx2.Response(answer.status, content=answer.body, headers=headers)


@dataclass(kw_only=True)
class User:
    """Somebody with a world, a client and a watch."""

    world: World = field(
        default_factory=lambda: new_world(Settings(seed=1, created=START, time_scale=1.0))
    )
    wire: Wire
    clock: LoopClock
    cloud: Cloud
    directory: CloudNodeDirectory

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A plain request of somebody else's."""
        target = httpx2.URL(f"{URL}/{path}")
        answer = handle_request(
            self.world,
            Request(
                method=method,
                path=target.path,
                query=target.query.decode(),
                body=b"" if body is None else json.dumps(body).encode(),
            ),
            self.clock.now(),
        )
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    async def node(self, name: str, zone: str = ZONE, **fields: Any) -> None:
        """A node that is READY."""
        place = f"v2/projects/demo/locations/{zone}/nodes"
        spec = {"acceleratorType": "v4-16", "runtimeVersion": "tpu-ubuntu2204-base", **fields}
        spec.setdefault("networkConfig", {"enableExternalIps": True})
        await self.ask("POST", f"{place}?nodeId={name}", spec)
        async with asyncio.timeout(3600):
            while (await self.ask("GET", f"{place}/{name}"))["state"] != "READY":
                await asyncio.sleep(1)

    async def publish(self, name: str, worker: int, key: str) -> None:
        """What the guest agent of a host does at its boot."""
        uid = self.world.nodes[f"{ZONE}/{name}"].uid
        path = f"sim/v1/hosts/{uid}-{worker}/guest-attributes/hostkeys"
        await self.ask("PUT", f"{path}/ssh-ed25519", {"value": key})
        await self.ask("PUT", f"{path}/hostname", {"value": f"t1v-n-x-w-{worker}"})

    async def weather(self, kind: str, **arguments: Any) -> None:
        await self.ask("POST", f"sim/v1/weather/{kind}", arguments)


def live(work: Callable[[User], Awaitable[T]]) -> T:
    """Let a user do something, in virtual time."""

    async def main() -> T:
        world = new_world(Settings(seed=1, created=START, time_scale=1.0))
        clock = LoopClock(START)
        wire = Wire(world, clock)
        async with world_http_client(wire) as http:
            cloud = Cloud(RestClient(http, ServiceUrls.of_world(URL), AnonymousAuth()), "demo")
            directory = CloudNodeDirectory(cloud, 22, clock)
            return await work(
                User(world=world, wire=wire, clock=clock, cloud=cloud, directory=directory)
            )

    return run(main())
