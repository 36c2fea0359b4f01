"""The HTTP client, imported when it is first used: many commands never need its 0.1 s."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    import httpx2 as httpx2
else:
    httpx2 = import_lazily("httpx2")


class LazyHttpClient:
    """A client that is created for its first request."""

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        self._make = make
        self._client: httpx2.AsyncClient | None = None

    def stream(self, *words: Any, **more: Any) -> AbstractAsyncContextManager[httpx2.Response]:
        """Like `httpx2.AsyncClient.stream`."""
        return self._open_client().stream(*words, **more)

    async def request(self, *words: Any, **more: Any) -> httpx2.Response:
        """Like `httpx2.AsyncClient.request`."""
        return await self._open_client().request(*words, **more)

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = self._make()
        return self._client

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
