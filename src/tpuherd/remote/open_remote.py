"""Creates the REST client and the connection pool of a project or world.

async with open_remote_session(access, WallClock()) as session:  # keep it as long as you like
    hosts = await session.resolve_hosts("gpt-[0-3]/w0,other")    # NotFound names near misses
    async for done in run_on_each(hosts, work, seconds=30):      # FanoutResult
        ...                                # in `work`: await session.pool.get_link(host)
"""

import resource
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from tpuherd.clock import Clock
from tpuherd.cloud.auth import AnonymousAuth, GoogleAuth
from tpuherd.cloud.lazy_http import LazyHttpClient
from tpuherd.cloud.node_cache import NodeCache
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.rest import RequestAuth, RestClient, google_http_client, world_http_client
from tpuherd.cloud.retrying_rest import RetryingRest
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.remote.client_key import key_pair
from tpuherd.remote.connection_pool import ClientIdentity, ConnectionPool
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.iap_tunnel import IapRelay
from tpuherd.remote.resolve_hosts import CloudNodeDirectory, RemoteSession
from tpuherd.settings.endpoints import IAP_URL
from tpuherd.settings.project_access import ProjectAccess, find_owner_id, local_user, own_owner_ids
from tpuherd_host.agent.frames import PROTOCOL

DESCRIPTORS = 65_536
MAC_DESCRIPTORS = 10_240  #: the most that macOS allows by default

METADATA_LOCKS = "node-metadata"  #: held while any herd of this user changes a node's metadata


@asynccontextmanager
async def open_remote_session(
    place: ProjectAccess, clock: Clock, *, epoch: int = 0
) -> AsyncIterator[RemoteSession]:
    """A session for the hosts of a project or world, closed after the block.

    `epoch` is that of an engine; 0 for commands.
    """
    raise_descriptor_limit()
    keys = key_pair(place.folders.config)
    hello = {
        "protocol": PROTOCOL,
        "who": f"{local_user()}@{socket.gethostname()}",
        "owner": find_owner_id(place),
        "epoch": epoch,
    }
    async with open_cloud(place, clock, retries=not epoch) as cloud:
        auth_headers = cloud.rest.bearer.auth_headers
        relay = IapRelay(url=IAP_URL, project=place.project, auth_headers=auth_headers)
        caller = ClientIdentity(
            login=place.login,
            keys=keys,
            hello=hello,
            bundle=current_agent(place.folders.state / "agent"),
            routes=place.routes,
            relay=None if place.world else relay,
        )
        seen = None if epoch else NodeCache(place.folders.state / "nodes" / place.logs_folder.name)
        directory = CloudNodeDirectory(cloud, place.ssh_port, clock, seen)
        pool = ConnectionPool(directory, caller, Pins(place.folders.state / "pins"), clock)
        try:
            yield RemoteSession(directory, pool, clock, lambda: own_owner_ids(place))
        finally:
            await pool.close()


@asynccontextmanager
async def open_cloud(
    place: ProjectAccess, clock: Clock, *, retries: bool = True
) -> AsyncIterator[Cloud]:
    """The cloud of a project or world, without its hosts: needs no key and creates no file."""
    async with aclosing(
        LazyHttpClient(world_http_client if place.world else google_http_client)
    ) as http:
        bearer: RequestAuth = (
            AnonymousAuth() if place.world else GoogleAuth(place.credentials, http, clock)
        )
        rest = (
            RetryingRest(http, place.urls, bearer, clock)
            if retries
            else RestClient(http, place.urls, bearer)
        )
        yield Cloud(
            rest, place.project, project_keys=place.project_keys, clock=clock,
            lock_folder=place.folders.state / METADATA_LOCKS,
        )  # fmt: skip


def raise_descriptor_limit() -> None:
    """Raise the limit of open files: each connection needs a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (DESCRIPTORS, MAC_DESCRIPTORS):
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
        except (ValueError, OSError):
            continue  # macOS reports "unlimited" but refuses large values
