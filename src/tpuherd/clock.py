"""The one module that tells the time."""

import asyncio
import time
from typing import Protocol

STEP_S = 30.0  #: a clock that moves on so far at once was set ahead, or its machine has slept


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

    def wait(self, seconds: float) -> None:
        """The same where no event loop can be asked: it holds up everything."""
        time.sleep(seconds)


class SteadyClock:
    """The time of another clock that may be set: this one never goes back.

    Where the other is set back, this one goes on from where it was; where the other is set ahead
    again, this one falls in with it. `not_before`: the latest time that was written down.
    """

    def __init__(self, clock: Clock, not_before: float = 0.0) -> None:
        self._clock = clock
        self._shown = clock.now()
        self._ahead_s = max(0.0, not_before - self._shown)

    def now(self) -> float:
        shown = self._clock.now()
        moved_s, self._shown = shown - self._shown, shown
        if moved_s < 0:
            self._ahead_s -= moved_s
        elif moved_s > STEP_S:
            self._ahead_s -= min(self._ahead_s, moved_s)
        return shown + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class LoopClock:
    """The time of the running event loop, counted from `start`: virtual where the loop is."""

    def __init__(self, start: float) -> None:
        self.start = start

    def now(self) -> float:
        return self.start + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
