"""An event loop whose clock jumps to the next timer: days of a world in seconds."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")


class Deadlock(RuntimeError):
    """Every task waits and no timer is set, so virtual time can't advance."""


class VirtualSelector(selectors.BaseSelector):
    """Never blocks: a wait advances the clock instead.

    The loop registers its wake-up socket here; no other descriptor ever becomes ready, so a
    virtual loop supports neither sockets nor threads.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self.registered[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.registered.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is scheduled and every task waits")
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self.registered


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = VirtualSelector()
        super().__init__(self.selector)
        # With the default resolution of nanoseconds a timer can stay a rounding error ahead of the
        # clock, and the loop would never end.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.selector.now


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in virtual time, then cancel the remaining tasks."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
