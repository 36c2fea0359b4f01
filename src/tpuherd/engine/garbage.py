"""When Python looks for garbage in the engine's process: seldom, and at times that we choose.

Most objects go at once, by reference counts; the collector is for cycles. Left to itself, it looks
at all objects again and again while surveys of thousands of nodes are parsed: at 1,000 nodes that
was half of the engine's processor time, and its pauses delayed requests by up to two seconds.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tpuherd.clock import Clock

YOUNG = 100_000  #: new objects that are looked at together
NEVER = 1_000_000  #: collections of young objects that lead to one of older objects
COLLECT_S = 900.0  #: between full collections: cycles of lost connections wait for so long


@asynccontextmanager
async def rare_collections(clock: Clock) -> AsyncIterator[None]:
    """Within the block, leave out what is loaded already, and collect all else each COLLECT_S."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, NEVER, NEVER)
    collecting = asyncio.create_task(collect_periodically(clock))
    try:
        yield
    finally:
        collecting.cancel()
        gc.set_threshold(*before)
        gc.unfreeze()


async def collect_periodically(clock: Clock) -> None:
    while True:
        await clock.sleep(COLLECT_S)
        gc.collect()
