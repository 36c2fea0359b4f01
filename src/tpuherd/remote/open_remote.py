"""Puts the adapters together: the ways to the hosts of a place.

place = meant.place(os.environ, world=None)
async with app.reaching(place, WallClock()) as reach:      # Reach: keep it as long as you like
    hosts = await reach.hosts("gpt-[0-3]/w0,other")        # [Host]; NotFound with near misses
    async for done in fanout.each(hosts, work, seconds=30):        # Done(host, value, error)
        ...                                        # in `work`: await reach.ways.link(host)
"""

import resource
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from tpuherd.clock import Clock
from tpuherd.cloud.auth import Account, Nobody
from tpuherd.cloud.lazy_http import Later
from tpuherd.cloud.node_cache import Seen
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.rest import Bearer, Rest, client, client_outside
from tpuherd.cloud.retrying_rest import Patient
from tpuherd.remote.agent_bundle import agent
from tpuherd.remote.client_key import key_pair
from tpuherd.remote.connection_pool import Caller, Ways
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.resolve_hosts import Reach, Registrar
from tpuherd.settings.project_access import Place, local_user, owner, owners
from tpuherd_host.agent.frames import PROTOCOL

DESCRIPTORS = 65_536


@asynccontextmanager
async def reaching(place: Place, clock: Clock, *, epoch: int = 0) -> AsyncIterator[Reach]:
    """The ways to the hosts of a place, open as long as the block lasts. Engines have an epoch."""
    room_for_many()
    keys = key_pair(place.folders.config)
    hello = {
        "protocol": PROTOCOL,
        "who": f"{local_user()}@{socket.gethostname()}",
        "owner": owner(place.folders.config),
        "epoch": epoch,
    }
    caller = Caller(login=place.login, keys=keys, hello=hello, parcel=agent(), ways=place.ways)
    async with aclosing(Later(client if place.world else client_outside)) as http:
        bearer: Bearer = Nobody() if place.world else Account(place.credentials, http, clock)
        rest = Rest(http, place.urls, bearer) if epoch else Patient(http, place.urls, bearer, clock)
        cloud = Cloud(rest, place.project, project_keys=place.project_keys)
        seen = None if epoch else Seen(place.folders.state / "nodes" / place.logs.name)
        registrar = Registrar(cloud, place.ssh_port, clock, seen)
        roads = Ways(registrar, caller, Pins(place.folders.state / "pins"), clock)
        try:
            yield Reach(registrar, roads, clock, lambda: owners(place))
        finally:
            await roads.close()


def room_for_many() -> None:
    """Hundreds of connections need as many descriptors: take as many as we may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            return  # macOS says "unlimited" and means otherwise
