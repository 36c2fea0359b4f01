"""What this process has seen of hosts, for as long as it is likely still to be so."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from tpuherd.sync.relay_tree import NodePair

K = TypeVar("K")
V = TypeVar("V")
MOST = 10_000
HOUR_S, DAY_S = 3600.0, 86_400.0


class RecentCache(Generic[K, V]):
    """Values that are forgotten after a while, the oldest first where there are too many."""

    def __init__(self, age_s: float, most: int = MOST) -> None:
        self.age_s, self.most = age_s, most
        self._found: dict[K, tuple[float, V]] = {}  #: the oldest first

    def put(self, key: K, value: V, now: float) -> None:
        """It is so now."""
        self._found.pop(key, None)
        self._found[key] = (now, value)
        while len(self._found) > self.most:
            del self._found[next(iter(self._found))]

    def remove(self, key: K) -> None:
        """It may be so no more."""
        self._found.pop(key, None)

    def get(self, key: K, now: float) -> V | None:
        """What it was, if that is not too long ago."""
        at, value = self._found.get(key, (now, None))
        return value if now - at < self.age_s else None

    def iter_recent(self, now: float) -> Iterator[K]:
        """Every key that is not too old."""
        for key in [key for key, (at, _) in self._found.items() if now - at >= self.age_s]:
            del self._found[key]
        yield from self._found


#: Nodes that don't reach each other. Networks are mended: after an hour they may try again.
APART: RecentCache[NodePair, None] = RecentCache(HOUR_S)
#: The snapshot that a host has at a destination, by its node, its name and the destination. It is
#: only a guess: the host itself looks.
STANDS: RecentCache[tuple[str, str, str], str] = RecentCache(DAY_S)
