"""Runs all services of one host while it is up."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import socket

from tpuherd.clock import Clock, WallClock
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.host_services import libtpu_metrics, metadata_server, packages
from tpuherd_sim.host_services.accept import accept_connections
from tpuherd_sim.host_services.guest_agent import GuestAgent
from tpuherd_sim.host_services.libtpu_metrics import RuntimeMetrics
from tpuherd_sim.host_services.metadata_server import MetadataServer
from tpuherd_sim.host_services.package_proxy import PackageProxy
from tpuherd_sim.host_services.packages import PackageSources, write_package_config
from tpuherd_sim.hosts.api_address import API_PORT
from tpuherd_sim.hosts.host_protocols import Host, WorldApi
from tpuherd_sim.http.app import App, create_app
from tpuherd_sim.http.object_contents import ObjectContents
from tpuherd_sim.http.server import guard_app, make_config, serve_connection

log = logging.getLogger(__name__)
APIS_ADDRESS = ("169.254.169.254", API_PORT)  #: named by the hosts' environment


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """Settings that the services of all hosts share."""

    keys_folder: Path  #: the same as the SSH server's
    internet: bool = True
    packages: PackageSources = field(default_factory=PackageSources)
    contents: ObjectContents | None = None  #: the bytes of objects in buckets
    clock: Clock = field(default_factory=WallClock)
    #: Whether to answer a connection: anyone can reach hosts that have no network of their own.
    admit: Callable[[socket], bool] = lambda end: True


@asynccontextmanager
async def run_host_services(
    host: Host, world_api: WorldApi, settings: ServiceSettings
) -> AsyncIterator[None]:
    """Run metadata, metrics, packages and the guest agent; stop all of them on exit."""
    clock = settings.clock
    places: dict[tuple[str, int], Callable[[socket], Awaitable[None]]] = {
        metadata_server.ADDRESS: MetadataServer(world_api, host.view.key, clock).serve_connection,
        libtpu_metrics.ADDRESS: RuntimeMetrics(host, clock).serve_connection,
        packages.PROXY_ADDRESS: PackageProxy(
            settings.packages, internet=settings.internet
        ).serve_connection,
    }
    if settings.contents is not None:
        config = make_config(host_app(settings.contents, host.view.key, clock))
        places[APIS_ADDRESS] = partial(serve_connection, config=config)
    agent = GuestAgent(host, world_api, settings.keys_folder, clock)
    tasks: list[asyncio.Task[None]] = []
    try:
        for place, serve in places.items():
            listener = await try_listen(host, place)
            if listener is not None:
                tasks.append(asyncio.create_task(accept_connections(listener, serve, settings)))
        with suppress(OSError):  # a host with a full disk still boots
            await write_package_config(host, settings.packages)
        tasks.append(asyncio.create_task(run_logged(agent.run)))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_logged(work: Callable[[], Awaitable[None]]) -> None:
    """Run a task of a host; log its errors, which do not affect the host or its other services."""
    try:
        await work()
    except Exception:
        log.exception("the guest agent of a host failed")


async def try_listen(host: Host, place: tuple[str, int]) -> socket | None:
    """Return a socket inside the host, or None if hosts share a network or a program
    uses the port.
    """
    try:
        return await host.open_listener(*place)
    except OSError:
        return None


def host_app(contents: ObjectContents, key: str, clock: Clock) -> App:
    """Return Google's APIs as one host reaches them, with the rights of its service account."""
    live_world = contents.live_world
    app = create_app(live_world, clock, contents=contents, caller={HOST_HEADER: key})
    return guard_app(app, live_world.current_time)
