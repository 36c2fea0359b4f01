"""Tells the time: the only module that does."""

import asyncio
import time
from typing import Protocol

STEP_S = 30.0  #: a longer jump means that the clock was set or the machine slept


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait this long by this clock."""
        ...


class WallClock:
    """The time of this machine."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def wait(self, seconds: float) -> None:
        """Block the thread, for code without an event loop."""
        time.sleep(seconds)


class SteadyClock:
    """A clock that never goes back, based on one that may be set.

    If the other clock is set back, this one continues from where it was; if the other is set ahead
    again, this one follows it. `not_before`: the latest time on record.
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
    """The running event loop's time, counted from `start`: virtual if the loop is."""

    def __init__(self, start: float) -> None:
        self.start = start

    def now(self) -> float:
        return self.start + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
