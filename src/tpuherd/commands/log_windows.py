"""Reads the beginning and the end of a log of any size, in memory that does not grow with it."""

from collections import deque
from collections.abc import Iterable, Mapping

HEAD_BYTES, TAIL_BYTES = 1 << 20, 4 << 20  #: kept of the beginning and the end


class LogWindow:
    """What is kept of a log while its pieces come in."""

    def __init__(self, head_max: int = HEAD_BYTES, tail_max: int = TAIL_BYTES) -> None:
        self._head_room, self._tail_max = head_max, tail_max
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._skipped_lines = 0
        self.skipped = 0  #: bytes that are not kept
        self.size = 0  #: of the whole log

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        first, rest = piece[: self._head_room], piece[self._head_room :]
        self._head += first
        self._head_room -= len(first)
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_max:
            gone = self._tail.popleft()
            self._tail_size -= len(gone)
            self.skipped += len(gone)
            self._skipped_lines += gone.count(b"\n")

    def add_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.add(piece)

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    def text_parts(self) -> list[tuple[int, str]]:
        """What is kept, each part with the number of its first line."""
        tail = b"".join(self._tail)
        if not self.skipped:
            return [(1, (self.head + tail).decode(errors="replace"))]
        number = self._head.count(b"\n") + self._skipped_lines + 1
        return [(1, self.head.decode(errors="replace")), (number, tail.decode(errors="replace"))]


def large_notices(skipped: Mapping[str, int]) -> list[str]:
    """A sentence about logs (by name) of which so many bytes were left out; [] if there is none."""
    if not skipped:
        return []
    amount = f"{sum(skipped.values()) / (1 << 20):.0f} MiB"
    if len(skipped) > 1:
        return [f"{len(skipped)} logs are large: {amount} in the middle of them were not searched"]
    return [f"{next(iter(skipped))} is large: {amount} in the middle of it were not searched"]
