"""An event loop whose clock jumps to the next timer: days of a world in seconds."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")


class Deadlock(RuntimeError):
    """Every task waits and nothing is scheduled: in virtual time that can never end."""


class VirtualSelector(selectors.BaseSelector):
    """Never blocks: being asked to wait for so long moves the clock by so much.

    The loop registers its own wake-up socket here; no other descriptor ever becomes ready, so
    sockets and threads have no place in a virtual loop.
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
    """An asyncio loop on virtual time."""

    def __init__(self) -> None:
        self.selector = VirtualSelector()
        super().__init__(self.selector)
        # With the usual resolution of nanoseconds a timer can stay a rounding error ahead of the
        # clock, and the loop would turn without end.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.selector.now


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in virtual time, then cancel whatever is left."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
