"""The metadata server that the programs of a host find at 169.254.169.254."""

import asyncio
import json
import socket
from urllib.parse import quote, unquote

from tpuherd.clock import Clock
from tpuherd_sim.host_services.http1 import conversing
from tpuherd_sim.hosts.host_protocols import Desk
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.tpu.metadata_replies import ROOT, awaited, etag_of, reply

ADDRESS = ("169.254.169.254", 80)
GUEST = f"{ROOT}/instance/guest-attributes/"


class MetadataServer:
    """One host's view of the world's metadata."""

    def __init__(self, desk: Desk, key: str, clock: Clock) -> None:
        self.desk = desk
        self.key = key
        self.clock = clock

    async def serve(self, end: socket.socket) -> None:
        """One connection."""
        await conversing(end, self.answer, self.now)

    def now(self) -> float:
        """The time as this host is to see it."""
        view = self.desk.view(self.key)
        return self.clock.now() + (view.clock_skew_s if view else 0.0)

    async def answer(self, request: Request) -> Response:
        """One request, waiting for a change if that is asked for."""
        if request.method in ("PUT", "DELETE") and request.path.startswith(GUEST):
            return self.write(request)
        response = reply(self.desk.metadata(self.key), request)
        wait = awaited(request)
        if wait is None or response.status != 200:
            return response
        known = wait.last_etag if wait.last_etag is not None else etag_of(response)
        try:
            async with asyncio.timeout(wait.timeout_s):
                while etag_of(response) == known:
                    await self.desk.changed(self.key)
                    response = reply(self.desk.metadata(self.key), request)
        except TimeoutError:
            pass  # the client gets what it knows already, and asks again
        return response

    def write(self, request: Request) -> Response:
        """Guest attributes are what a host may write itself."""
        allowed = reply({}, Request(method="GET", path=ROOT + "/", headers=request.headers))
        if allowed.status != 200:
            return allowed
        namespace, _, name = unquote(request.path.removeprefix(GUEST)).partition("/")
        if not namespace or not name.strip("/"):
            return reply({}, Request(method="GET", path=GUEST, headers=request.headers))
        path = f"/sim/v1/hosts/{self.key}/guest-attributes/{quote(namespace)}/{quote(name)}"
        value = json.dumps({"value": request.body.decode("utf-8", "replace")}).encode()
        done = self.desk.handle(Request(method=request.method, path=path, body=value))
        return Response(
            status=done.status if done.status >= 400 else 200, headers=allowed.headers[:4]
        )
