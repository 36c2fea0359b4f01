"""An HTTP transport to a world in the same process: no socket, no thread, any clock."""

import httpx2

from tpuherd_sim.http.app import App, LostAnswer


class InProcessTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the app; a lost response is a broken connection, as over TCP."""

    def __init__(self, app: App) -> None:
        self._inner = httpx2.ASGITransport(app=app)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._inner.handle_async_request(request)
        except LostAnswer as lost:
            raise httpx2.ReadError(str(lost), request=request) from lost
