"""The engine's clock continues, whatever the machine's clock is set to."""

from hypothesis import given
from hypothesis import strategies as st

from tpuherd.clock import STEP_S, SteadyClock


class Set:
    """A clock that somebody sets."""

    def __init__(self, now: float = 1000.0) -> None:
        self.shown = now

    def now(self) -> float:
        return self.shown

    async def sleep(self, seconds: float) -> None:
        self.shown += seconds


def test_time_continues_when_the_clock_is_set_back() -> None:
    inner = Set()
    clock = SteadyClock(inner)
    inner.shown += 10.0
    assert clock.now() == 1010.0
    inner.shown -= 3600.0
    assert clock.now() == 1010.0
    inner.shown += 5.0
    assert clock.now() == 1015.0


def test_time_follows_a_clock_that_is_corrected() -> None:
    inner = Set()
    clock = SteadyClock(inner)
    inner.shown -= 3600.0
    clock.now()
    inner.shown += 3600.0
    assert clock.now() == inner.now()


def test_time_starts_no_earlier_than_the_recorded_time() -> None:
    inner = Set()
    clock = SteadyClock(inner, 5000.0)
    assert clock.now() == 5000.0
    inner.shown += 7.0
    assert clock.now() == 5007.0
    assert SteadyClock(inner, 3.0).now() == inner.now()


@given(st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_time_never_goes_back_or_stops_for_long(moves: list[float]) -> None:
    inner = Set(1e7)
    clock = SteadyClock(inner)
    before = clock.now()
    for move in moves:
        inner.shown += move
        now = clock.now()
        assert now >= before - 1e-6
        if 0.0 <= move <= STEP_S:
            assert abs(now - before - move) < 1e-6
        before = now
