"""Runs all services of one host while it is up."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import socket

from tpuherd.clock import Clock, WallClock
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.host_services import libtpu_metrics, metadata_server, packages
from tpuherd_sim.host_services.accept import accept_connections
from tpuherd_sim.host_services.guest_agent import GuestAgent
from tpuherd_sim.host_services.http1 import serve_http
from tpuherd_sim.host_services.libtpu_metrics import RuntimeMetrics
from tpuherd_sim.host_services.metadata_server import MetadataServer
from tpuherd_sim.host_services.package_proxy import PackageProxy
from tpuherd_sim.host_services.packages import PackageSources, write_package_config
from tpuherd_sim.hosts.bucket_address import STORAGE_PORT
from tpuherd_sim.hosts.host_protocols import Host, WorldApi
from tpuherd_sim.http.app import UPLOAD_BYTES_MAX
from tpuherd_sim.http.gcs_objects import TREES, ObjectStore
from tpuherd_sim.model.http_types import Request, Response

log = logging.getLogger(__name__)
BUCKETS_ADDRESS = ("169.254.169.254", STORAGE_PORT)  #: named by the hosts' environment


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """Settings that the services of all hosts share."""

    keys_folder: Path  #: the same as the SSH server's
    internet: bool = True
    packages: PackageSources = field(default_factory=PackageSources)
    objects: Path | None = None  #: the folder of the bucket objects
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
    if settings.objects is not None:
        places[BUCKETS_ADDRESS] = BucketGateway(
            world_api, settings.objects, (host.view.key, clock)
        ).serve_connection
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


class BucketGateway:
    """Cloud Storage as one host reaches it, with the rights of its node's service account."""

    def __init__(self, world_api: WorldApi, folder: Path, host: tuple[str, Clock]) -> None:
        self.world_api = world_api
        self.objects = ObjectStore(world_api, folder)
        self.key, self.clock = host

    async def serve_connection(self, end: socket) -> None:
        await serve_http(end, self.answer_request, self.clock.now, UPLOAD_BYTES_MAX)

    async def answer_request(self, request: Request) -> Response:
        """Answer requests for objects and buckets; refuse everything else."""
        if not request.path.startswith(TREES):
            return Response(status=404, body=b"Not Found")
        request = replace(request, headers={**request.headers, HOST_HEADER: self.key})
        return await self.objects.answer_request(request) or self.world_api.handle_request(request)
