"""Survey the cloud periodically: two lists each time, however many nodes there are."""

import asyncio
from collections.abc import Callable
from math import inf

from tpuherd.clock import Clock
from tpuherd.engine.observe import NOTHING
from tpuherd.errors import HerdError, NotListening
from tpuherd.ports import CloudPort, Survey

PERIOD_S_MIN, PERIOD_S_MAX = 3.0, 60.0
READS_PER_MIN = 44  #: with the jitter not more than 50; what others ask is not ours to know
JITTER = 0.1  #: many engines of one project don't look at the same moment
GOLDEN = 0.618034  #: spreads the jitter evenly


class Informer:
    """What the cloud showed last."""

    def __init__(
        self,
        cloud: CloudPort,
        clock: Clock,
        *,
        zones: Callable[[], frozenset[str]],
        seen: Callable[[], None],
        failed: Callable[[HerdError], None],
    ) -> None:
        self.survey: Survey = NOTHING
        self.absent_at = inf  #: since when the cloud's address is absent
        self._cloud = cloud
        self._clock = clock
        self._zones = zones
        self._seen = seen
        self._failed = failed
        self._period_s = PERIOD_S_MIN
        self._changed = asyncio.Event()

    def set_period(self, seconds: float) -> None:
        """Look as often as this from now on."""
        period_s = min(max(seconds, PERIOD_S_MIN), PERIOD_S_MAX)
        if period_s != self._period_s:
            self._period_s = period_s
            self._changed.set()

    async def poll_cloud(self) -> None:
        """Without an end."""
        many = 0
        while True:
            begun_at = self._clock.now()
            try:
                self.survey = await self._cloud.survey_bids(self._zones())
                self.absent_at = inf
                self._seen()
            except HerdError as error:
                absent = isinstance(error, NotListening)
                self.absent_at = min(self.absent_at, begun_at) if absent else inf
                self._failed(error)
            many += 1
            await self._wait_period(begun_at, 1 + JITTER * (2 * (many * GOLDEN % 1) - 1))

    def _budgeted_period(self) -> float:
        """As was said, but within the budget: a list of many pages costs as many reads."""
        return max(self._period_s, 60.0 * self.survey.reads / READS_PER_MIN)

    async def _wait_period(self, begun_at: float, jitter: float) -> None:
        """Until it is time again; that may change meanwhile."""
        while (left := begun_at + self._budgeted_period() * jitter - self._clock.now()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return
