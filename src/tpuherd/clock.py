"""The one module that tells the time."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from, and how to wait."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so long by this clock."""
        ...


class WallClock:
    """The time of this machine."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class LoopClock:
    """The time of the running event loop, counted from `start`: virtual where the loop is."""

    def __init__(self, start: float) -> None:
        self.start = start

    def now(self) -> float:
        return self.start + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
