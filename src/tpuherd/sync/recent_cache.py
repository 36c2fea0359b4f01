"""Remembers what this process learned about hosts, as long as it is likely to be true."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from tpuherd.sync.relay_tree import NodePair

K = TypeVar("K")
V = TypeVar("V")
MOST = 10_000
HOUR_S, DAY_S = 3600.0, 86_400.0


class RecentCache(Generic[K, V]):
    """A cache whose entries expire; the oldest go first if there are too many."""

    def __init__(self, age_s: float, most: int = MOST) -> None:
        self.age_s, self.most = age_s, most
        self._found: dict[K, tuple[float, V]] = {}  #: the oldest first

    def put(self, key: K, value: V, now: float) -> None:
        self._found.pop(key, None)
        self._found[key] = (now, value)
        while len(self._found) > self.most:
            del self._found[next(iter(self._found))]

    def remove(self, key: K) -> None:
        self._found.pop(key, None)

    def get(self, key: K, now: float) -> V | None:
        """The value, unless it has expired."""
        at, value = self._found.get(key, (now, None))
        return value if now - at < self.age_s else None

    def iter_recent(self, now: float) -> Iterator[K]:
        """All keys that have not expired."""
        for key in [key for key, (at, _) in self._found.items() if now - at >= self.age_s]:
            del self._found[key]
        yield from self._found


#: Pairs of nodes that can't reach each other. After an hour they may try again.
APART: RecentCache[NodePair, None] = RecentCache(HOUR_S)
#: The snapshot that a host has at a destination, by node, host name and destination. It is only a
#: hint: the host checks it.
LAST_SHIPPED: RecentCache[tuple[str, str, str], str] = RecentCache(DAY_S)
