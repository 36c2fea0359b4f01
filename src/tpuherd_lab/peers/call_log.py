"""Counts calls to the cloud's API, and the most within any minute."""

from collections import Counter, deque

MINUTE = 60.0


class CallLog:
    """Calls in the order of time; long series of polls are counted, not listed."""

    def __init__(self, end: float) -> None:
        self.end = end
        self.calls: Counter[str] = Counter()
        self.peak = 0
        self._minute: deque[float] = deque()

    def add_call(self, method: str, at: float) -> None:
        if at < self.end:
            self.calls[method] += 1
            self._count_in_minute(at)

    def add_polls(self, method: str, start: float, stop: float, period_s: float) -> None:
        """Count a call at `start` and then every period, before `stop`."""
        stop = min(stop, self.end)
        if stop <= start:
            return
        count = int((stop - start - 1e-9) // period_s) + 1
        self.calls[method] += count
        # The densest minute of a series is its first, and only its last can meet what follows.
        most = int(MINUTE // period_s) + 1
        for number in range(min(most, count)):
            self._count_in_minute(start + number * period_s)
        for number in range(max(most, count - most), count):
            self._count_in_minute(start + number * period_s)

    def _count_in_minute(self, at: float) -> None:
        self._minute.append(at)
        while self._minute[0] <= at - MINUTE:
            self._minute.popleft()
        self.peak = max(self.peak, len(self._minute))
