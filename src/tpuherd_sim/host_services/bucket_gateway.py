"""Cloud Storage as hosts reach it: at an internal address named by an environment variable."""

import socket
from pathlib import Path

from tpuherd.clock import Clock
from tpuherd_sim.host_services.http1 import serve_http
from tpuherd_sim.hosts.bucket_address import STORAGE_PORT
from tpuherd_sim.hosts.host_protocols import WorldApi
from tpuherd_sim.http.app import UPLOAD_BYTES_MAX
from tpuherd_sim.http.gcs_objects import TREES, ObjectStore
from tpuherd_sim.model.http_types import Request, Response

ADDRESS = ("169.254.169.254", STORAGE_PORT)


class BucketGateway:
    def __init__(self, desk: WorldApi, folder: Path, clock: Clock) -> None:
        self.desk = desk
        self.objects = ObjectStore(desk, folder)
        self.clock = clock

    async def serve_connection(self, end: socket.socket) -> None:
        await serve_http(end, self.answer_request, self.clock.now, UPLOAD_BYTES_MAX)

    async def answer_request(self, request: Request) -> Response:
        """Answer requests for objects and buckets; refuse everything else."""
        if not request.path.startswith(TREES):
            return Response(status=404, body=b"Not Found")
        return await self.objects.answer_request(request) or self.desk.handle_request(request)
