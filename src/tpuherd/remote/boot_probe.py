"""Finds out whether a host whose node is not READY yet has booted."""

import asyncio
from collections.abc import Sequence

from tpuherd.errors import NotReached
from tpuherd.ports import Host
from tpuherd.settings.host_routes import Route, RouteKind, default_routes

PROBE_S = 1.0  #: for the host to accept a connection
STILL_BOOTS = "its node is not READY yet"


async def check_boot(host: Host, routes: Sequence[Route]) -> None:
    """Raise NotReached unless its SSH port answers: this costs no call to the cloud.

    A host that is reached by other ways than an address is contacted once its node is READY.
    """
    route = next((one for one in routes or default_routes(host) if one.can_reach(host)), None)
    if route is None or route.kind not in (RouteKind.EXTERNAL, RouteKind.INTERNAL):
        raise NotReached(STILL_BOOTS)
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(route.host_address(host), host.ssh_port)
    except (OSError, TimeoutError) as error:
        raise NotReached(STILL_BOOTS) from error
    writer.transport.abort()
