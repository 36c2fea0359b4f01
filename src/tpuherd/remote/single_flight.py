"""Shares work that several callers ask for at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from tpuherd.clock import Clock

T = TypeVar("T")


class SingleFlight:
    """Runs one task for each key, and may reuse its result for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}  #: and until when valid
        self._looked_at = 0  #: number of tasks after the last look for outdated ones

    async def run(
        self, key: Hashable, work: Callable[[], Awaitable[T]], *, fresh_s: float = 0.0
    ) -> T:
        """The result of the task under way, or of one that began up to `fresh_s` ago, or of a new
        one. A cancelled caller does not cancel the task.
        """
        now = self._clock.now()
        until, task = self._tasks.get(key, (0.0, None))
        if task is None or (task.done() and now >= until):
            if len(self._tasks) > 2 * self._looked_at:
                self._drop_outdated(now)
            task = asyncio.ensure_future(work())
            self._tasks[key] = now + fresh_s, task
            task.add_done_callback(partial(self._end_task, key))
        result: T = await asyncio.shield(task)
        return result

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop_outdated(self, now: float) -> None:
        """Called each time that their number has doubled: with thousands at once, a look at all of
        them for each new one would take minutes."""
        for key, (until, task) in list(self._tasks.items()):
            if task.done() and now >= until:
                del self._tasks[key]
        self._looked_at = len(self._tasks)

    def _end_task(self, key: Hashable, task: asyncio.Future[Any]) -> None:
        # exception() also marks it as retrieved: perhaps no caller waits any more.
        failed = task.cancelled() or task.exception() is not None
        until, newest = self._tasks.get(key, (0.0, None))
        if task is newest and (failed or self._clock.now() >= until):
            del self._tasks[key]
