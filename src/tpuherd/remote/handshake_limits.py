"""How many handshakes at once, and how long they are waited for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
TURNS = 5  #: so often a patience begins anew


def unreachable_sentence(error: OSError, port: int) -> str:
    """The sentence for what the network said."""
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens on its port {port}"
    if isinstance(error, ConnectionResetError):
        return "it hung up before it let us in"
    return (error.strerror or str(error)).lower()


class HandshakeLimiter:
    """Lets so many greetings be under way; whoever takes long gives its place to the next."""

    def __init__(self, many: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(many)
        self._seconds = seconds

    @asynccontextmanager
    async def handshake_slot(self) -> AsyncIterator[None]:
        """Greet within the block."""
        await self._places.acquire()
        given = asyncio.get_running_loop().call_later(self._seconds, self._places.release)
        try:
            yield
        finally:
            if given.when() > asyncio.get_running_loop().time():
                given.cancel()
                self._places.release()


class SharedTimeout:
    """Waits for many as long as any of them comes: a slow machine takes long for all together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._came = 0

    async def wait_for(self, coming: Awaitable[T]) -> T:
        """What comes; TimeoutError where nobody at all has come for so long, or it never does."""
        task = asyncio.ensure_future(coming)
        try:
            for _ in range(TURNS):
                before = self._came
                await asyncio.wait([task], timeout=self._seconds)
                if task.done() or self._came == before:
                    break
            if not task.done():
                raise TimeoutError
            found = task.result()
            self._came += 1
            return found
        finally:
            task.cancel()
            await asyncio.wait([task])
