"""The metadata server of a host at 169.254.169.254."""

import asyncio
import json
import socket
from urllib.parse import quote, unquote

from tpuherd.clock import Clock
from tpuherd_sim.host_services.http1 import serve_http
from tpuherd_sim.hosts.host_protocols import WorldApi
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.tpu.metadata_replies import ROOT, metadata_response, requested_wait, response_etag

ADDRESS = ("169.254.169.254", 80)
GUEST = f"{ROOT}/instance/guest-attributes/"


class MetadataServer:
    """One host's view of the world's metadata."""

    def __init__(self, world_api: WorldApi, key: str, clock: Clock) -> None:
        self.world_api = world_api
        self.key = key
        self.clock = clock

    async def serve_connection(self, end: socket.socket) -> None:
        await serve_http(end, self.answer_request, self.host_time)

    def host_time(self) -> float:
        """Return the time with this host's clock skew."""
        view = self.world_api.host_view(self.key)
        return self.clock.now() + (view.clock_skew_s if view else 0.0)

    async def answer_request(self, request: Request) -> Response:
        """Answer a request; wait for a change if the request asks for it."""
        if request.method in ("PUT", "DELETE") and request.path.startswith(GUEST):
            return self.write_guest_attribute(request)
        response = metadata_response(self.world_api.metadata_tree(self.key), request)
        wait = requested_wait(request)
        if wait is None or response.status != 200:
            return response
        known = wait.last_etag if wait.last_etag is not None else response_etag(response)
        try:
            async with asyncio.timeout(wait.timeout_s):
                while response_etag(response) == known:
                    await self.world_api.wait_for_change(self.key)
                    response = metadata_response(self.world_api.metadata_tree(self.key), request)
        except TimeoutError:
            pass  # the client gets the current value and asks again
        return response

    def write_guest_attribute(self, request: Request) -> Response:
        """Store a guest attribute, the only metadata that a host may write."""
        allowed = metadata_response(
            {}, Request(method="GET", path=ROOT + "/", headers=request.headers)
        )
        if allowed.status != 200:
            return allowed
        namespace, _, name = unquote(request.path.removeprefix(GUEST)).partition("/")
        if not namespace or not name.strip("/"):
            return metadata_response({}, Request(method="GET", path=GUEST, headers=request.headers))
        path = f"/sim/v1/hosts/{self.key}/guest-attributes/{quote(namespace)}/{quote(name)}"
        value = json.dumps({"value": request.body.decode("utf-8", "replace")}).encode()
        done = self.world_api.handle_request(Request(method=request.method, path=path, body=value))
        return Response(
            status=done.status if done.status >= 400 else 200, headers=allowed.headers[:4]
        )
