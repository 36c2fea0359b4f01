"""Whose code the processor time of this process goes to, by looking each two milliseconds of it."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

EVERY_S = 0.002


class SampledTime:
    """Counts the owners of the running code; what is nobody's is shared out among them."""

    def __init__(self, owner: Callable[[FrameType | None], str]) -> None:
        self.owner = owner
        self.counts: Counter[str] = Counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count within this block."""
        self.counts.clear()
        before = signal.signal(signal.SIGPROF, self._count)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, before)

    def share(self, owner: str) -> float:
        """The owner's share of all processor time in the block, from 0 to 1."""
        owned = sum(self.counts.values()) - self.counts["loop"]
        return self.counts[owner] / owned if owned else 0.0

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.counts[self.owner(frame)] += 1
