"""Python's search for garbage in the engine's process: no pauses, and nothing kept for ever."""

import gc
import weakref

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.engine.garbage import COLLECT_S, YOUNG, rare_collections

CLOCK = LoopClock(0.0)  #: of the virtual loop


class Node:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_many_objects_at_once_cause_no_full_collection() -> None:
    async def main() -> int:
        async with rare_collections(CLOCK):
            before = full_collections()
            kept: list[list[int]] = [[] for _ in range(20 * YOUNG)]
            assert kept
            return full_collections() - before

    assert run(main()) == 0


def test_a_cycle_is_freed_within_one_period_however_quiet_it_is() -> None:
    async def main() -> tuple[bool, bool]:
        async with rare_collections(CLOCK):
            gone = weakref.ref(Node())
            before = gone() is not None
            await CLOCK.sleep(COLLECT_S + 1.0)
            return before, gone() is None

    assert run(main()) == (True, True)


def test_what_was_set_for_the_engine_ends_with_it() -> None:
    async def main() -> None:
        async with rare_collections(CLOCK):
            assert gc.get_threshold()[0] == YOUNG
            assert gc.get_freeze_count() > 0

    before = gc.get_threshold()
    run(main())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
