"""How often the engine surveys the cloud: quickly for a moment, and within its budget."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import cast

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.engine.informer import READS_PER_MIN, SPARE_READS_MAX, Informer
from tpuherd.engine.observe import NOTHING
from tpuherd.ports import CloudPort, Survey

PAGES = 2


def test_quick_surveys_use_what_was_spared_and_no_minute_has_more_than_60_reads() -> None:
    clock, times = LoopClock(0.0), list[float]()

    class Counted:
        async def survey_bids(self, zones: Collection[str], known: object) -> Survey:
            times.append(clock.now())
            return replace(NOTHING, reads=PAGES)

    async def survey() -> None:
        cloud = cast(CloudPort, Counted())
        informer = Informer(
            cloud, clock, zones=frozenset, bids=dict, seen=lambda: None, failed=lambda error: None
        )
        polling = asyncio.create_task(informer.poll_cloud())
        for quick in range(3):
            informer.set_period(5.0)
            await clock.sleep(60.0)
            informer.set_period(1.0)
            begun = clock.now()
            await clock.sleep(4.0)
            assert len([one for one in times if one >= begun]) >= 3, quick
            await clock.sleep(120.0)
        polling.cancel()

    run(survey())
    for first in times:
        within = [one for one in times if first <= one < first + 60.0]
        assert len(within) * PAGES <= 60
        assert len(within) * PAGES <= READS_PER_MIN * 1.2 + SPARE_READS_MAX + PAGES
