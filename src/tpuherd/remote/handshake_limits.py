"""Limits concurrent handshakes, and waits longer while others still make progress."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from math import inf
from typing import TypeVar

T = TypeVar("T")
TURNS = 5  #: how often a timeout may be extended
HANDSHAKE_S_MAX = 120.0  #: with a thousand hosts on one busy machine, living ones take a minute


def unreachable_sentence(error: OSError, port: int) -> str:
    """The message for a network error."""
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on its port {port}"
    if isinstance(error, ConnectionResetError):
        return "it closed the connection before login"
    return (error.strerror or str(error)).lower()


class HandshakeLimiter:
    """Bounds the handshakes under way; one that takes long no longer counts."""

    def __init__(self, many: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(many)
        self._seconds = seconds

    @asynccontextmanager
    async def handshake_slot(self) -> AsyncIterator[None]:
        """Wait for a place; it is given back after the block, or after a while."""
        await self._places.acquire()
        given = asyncio.get_running_loop().call_later(self._seconds, self._places.release)
        try:
            yield
        finally:
            if given.when() > asyncio.get_running_loop().time():
                given.cancel()
                self._places.release()


class SharedTimeout:
    """A timeout that many waiters share: while any of them succeeds, all keep waiting.

    On a slow machine many agents take long to start together, but none of them is dead.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._came = 0

    async def wait_for(self, coming: Awaitable[T]) -> T:
        """The result; TimeoutError if no waiter succeeded for a whole timeout, or after TURNS."""
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


class SharedPatience:
    """How long to wait for a host: while others are heard, a busy machine may be the reason.

    Hundreds of handshakes at once share this machine's cores, and in a world those of the hosts.
    """

    def __init__(self) -> None:
        self._heard_at = -inf

    def note_heard(self) -> None:
        """Note that some host has answered."""
        self._heard_at = asyncio.get_running_loop().time()

    async def wait_for(self, coming: Awaitable[T], seconds: float) -> T:
        """The result; TimeoutError if no host was heard for so long, or after HANDSHAKE_S_MAX."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        task = asyncio.ensure_future(coming)
        try:
            while not task.done():
                end = min(max(begun, self._heard_at) + seconds, begun + HANDSHAKE_S_MAX)
                if end <= loop.time():
                    raise TimeoutError
                await asyncio.wait([task], timeout=end - loop.time())
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])
