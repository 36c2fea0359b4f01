"""All that serves one running host from outside while it lives."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket

from tpuherd.clock import Clock, WallClock
from tpuherd_sim.host_services import bucket_gateway, libtpu_metrics, metadata_server, packages
from tpuherd_sim.host_services.accept import accepting
from tpuherd_sim.host_services.guest_agent import GuestAgent
from tpuherd_sim.host_services.libtpu_metrics import Metrics
from tpuherd_sim.host_services.metadata_server import MetadataServer
from tpuherd_sim.host_services.package_proxy import Proxy
from tpuherd_sim.host_services.packages import Packages, furnish
from tpuherd_sim.hosts.host_protocols import Desk, Host

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What the services of all hosts of a world have in common."""

    keys_folder: Path  #: the same as the SSH server's
    internet: bool = True
    packages: Packages = field(default_factory=Packages)
    objects: Path | None = None  #: where what is in buckets lies
    clock: Clock = field(default_factory=WallClock)
    #: Whether a connection is answered: hosts without their own network can be asked by anybody.
    admit: Callable[[socket], bool] = lambda end: True


@asynccontextmanager
async def services(host: Host, desk: Desk, around: Surroundings) -> AsyncIterator[None]:
    """Metadata, metrics, packages and the guest agent; on leaving all of it ends."""
    clock = around.clock
    places: dict[tuple[str, int], Callable[[socket], Awaitable[None]]] = {
        metadata_server.ADDRESS: MetadataServer(desk, host.view.key, clock).serve,
        libtpu_metrics.ADDRESS: Metrics(host, clock).serve,
        packages.PROXY_ADDRESS: Proxy(around.packages, internet=around.internet).serve,
    }
    if around.objects is not None:
        places[bucket_gateway.ADDRESS] = bucket_gateway.Storage(desk, around.objects, clock).serve
    agent = GuestAgent(host, desk, around.keys_folder, clock)
    tasks: list[asyncio.Task[None]] = []
    try:
        for place, serve in places.items():
            listener = await listening(host, place)
            if listener is not None:
                tasks.append(asyncio.create_task(accepting(listener, serve, around)))
        with suppress(OSError):  # a host whose disk is full comes up all the same
            await furnish(host, around.packages)
        tasks.append(asyncio.create_task(lasting(agent.run)))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def lasting(work: Callable[[], Awaitable[None]]) -> None:
    """Work that ends with its host; where it breaks, the host and what else serves it go on."""
    try:
        await work()
    except Exception:
        log.exception("the guest agent of a host broke")


async def listening(host: Host, place: tuple[str, int]) -> socket | None:
    """A socket inside; none where hosts have no network of their own, or the user took the port."""
    try:
        return await host.listen(*place)
    except OSError:
        return None
