"""Survey the cloud periodically: two lists each time, however many nodes there are."""

import asyncio
from collections.abc import Callable, Mapping
from math import inf

from tpuherd.clock import Clock
from tpuherd.engine.observe import NOTHING
from tpuherd.errors import HerdError, NotListening
from tpuherd.model.slot_history import BidRecord
from tpuherd.ports import CloudPort, Survey

FIRST_PERIOD_S, PERIOD_S_MIN, PERIOD_S_MAX = 3.0, 1.0, 60.0
READS_PER_MIN = 44  #: at most 50 with the jitter; other programs share the quota
SPARE_READS_MAX = 8  #: that were not needed earlier, and may be used at once
JITTER = 0.1  #: so that several engines of one project do not survey at the same moment
GOLDEN = 0.618034  #: spreads the jitter evenly


class Informer:
    """Hold the cloud's latest survey."""

    def __init__(
        self,
        cloud: CloudPort,
        clock: Clock,
        *,
        zones: Callable[[], frozenset[str]],
        bids: Callable[[], Mapping[str, BidRecord]],
        seen: Callable[[], None],
        failed: Callable[[HerdError], None],
    ) -> None:
        self.survey: Survey = NOTHING
        self.absent_at = inf  #: since when the cloud's address is absent
        self._cloud = cloud
        self._clock = clock
        self._zones = zones
        self._bids = bids
        self._seen = seen
        self._failed = failed
        self._period_s = FIRST_PERIOD_S
        self._spare_reads = 0.0
        self._counted_at = clock.now()
        self._changed = asyncio.Event()

    def set_period(self, seconds: float) -> None:
        """Set the survey period."""
        period_s = min(max(seconds, PERIOD_S_MIN), PERIOD_S_MAX)
        if period_s != self._period_s:
            self._period_s = period_s
            self._changed.set()

    async def poll_cloud(self) -> None:
        """Survey until cancelled."""
        many = 0
        while True:
            begun_at = self._clock.now()
            try:
                self.survey = await self._cloud.survey_bids(self._zones(), self._bids())
                self.absent_at = inf
                self._seen()
            except HerdError as error:
                absent = isinstance(error, NotListening)
                self.absent_at = min(self.absent_at, begun_at) if absent else inf
                self._failed(error)
            many += 1
            self._count_reads()
            await self._wait_period(begun_at, 1 + JITTER * (2 * (many * GOLDEN % 1) - 1))

    def _count_reads(self) -> None:
        """Take what a survey read from the budget, which grows with time."""
        now = self._clock.now()
        earned = (now - self._counted_at) * READS_PER_MIN / 60.0
        left = self._spare_reads + earned - self.survey.reads
        self._spare_reads, self._counted_at = min(max(left, 0.0), SPARE_READS_MAX), now

    def _budgeted_period(self) -> float:
        """The period within the budget: a list of many pages costs as many reads."""
        if self._spare_reads >= self.survey.reads:
            return self._period_s
        return max(self._period_s, 60.0 * self.survey.reads / READS_PER_MIN)

    async def _wait_period(self, begun_at: float, jitter: float) -> None:
        """Sleep until the next survey is due; the period may change meanwhile."""
        while (left := begun_at + self._budgeted_period() * jitter - self._clock.now()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return
