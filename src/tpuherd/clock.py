"""Tells the time: the only module that does."""

import asyncio
import time
from collections.abc import Callable
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


def boot_time() -> float:
    """Seconds since the machine booted, those of its sleep included; no one can set this."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """A clock that never goes back, based on one that may be set.

    If the other clock is set back, or jumps ahead although no time has passed, this one continues
    from where it was; `advance_to` takes the time that others show. `not_before`: the latest time
    on record. `elapsed`: how much time has passed; without it, a jump ahead is followed.
    """

    def __init__(
        self, clock: Clock, not_before: float = 0.0, elapsed: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._shown = clock.now()
        self._elapsed = elapsed
        self._ran = 0.0 if elapsed is None else elapsed()
        self._not_before = not_before
        self._ahead_s = max(0.0, not_before - self._shown)

    def now(self) -> float:
        shown = self._clock.now()
        moved_s, self._shown = shown - self._shown, shown
        if self._elapsed is not None:
            ran = self._elapsed()
            ran_s, self._ran = max(0.0, ran - self._ran), ran
            if abs(moved_s - ran_s) > STEP_S:
                self._ahead_s += ran_s - moved_s
                return shown + self._ahead_s
        elif moved_s > STEP_S:
            self._ahead_s -= min(self._ahead_s, moved_s)
        if moved_s < 0:
            self._ahead_s -= moved_s
        return shown + self._ahead_s

    @property
    def is_behind(self) -> bool:
        """Whether the other clock is far ahead since it jumped: one of the two is wrong."""
        return self.now() < self._shown - STEP_S

    def start_at(self, there: float) -> float:
        """Begin with the time that a trusted clock shows, also an earlier one, if this one is off;
        return by how much it was. Only before anything is recorded.
        """
        off_s = self.now() - there
        if abs(off_s) > STEP_S:
            self._ahead_s -= min(off_s, self.now() - self._not_before)
        return off_s

    def advance_to(self, there: float) -> None:
        """Go ahead to the time that a trusted clock shows."""
        self._ahead_s += max(0.0, there - self.now())

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
