"""The engine's clock continues, whatever the machine's clock is set to."""

from functools import partial

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


def test_a_clock_that_jumps_does_not_take_the_time_along() -> None:
    """Not for a minute, and not for good; and a machine that sleeps is no such jump."""
    inner, ran = Set(), 0.0
    clock = SteadyClock(inner, elapsed=lambda: ran)
    for jump, passes, behind in [
        (3600.0, 5.0, True),
        (0.0, 20.0, True),
        (-3600.0, 5.0, False),
        (0.0, 7200.0, False),  # asleep
        (-3600.0, 5.0, False),
        (3600.0, 0.0, False),
        (20.0, 0.0, False),  # set right by a little, as by NTP
    ]:
        before = clock.now()
        inner.shown += jump + passes
        ran += passes
        assert clock.now() == before + passes + (jump if jump == 20.0 else 0.0)
        assert clock.is_behind is behind
    assert clock.now() == inner.now()


def test_a_clock_that_was_wrong_at_the_start_is_corrected_by_others() -> None:
    inner = Set()
    clock = SteadyClock(inner, elapsed=lambda: 0.0)
    inner.shown += 3600.0
    assert clock.is_behind
    clock.advance_to(4590.0)
    assert clock.now() == 4590.0 and not clock.is_behind
    clock.advance_to(3.0)
    assert clock.now() == 4590.0


def test_a_clock_begins_with_the_time_of_others_but_never_before_what_is_recorded() -> None:
    for recorded, there, begins in [
        (0.0, 1020.0, 1000.0),  # as good as right
        (0.0, 4600.0, 4600.0),
        (0.0, 400.0, 400.0),
        (700.0, 400.0, 700.0),
        (5000.0, 400.0, 5000.0),
        (5000.0, 9000.0, 9000.0),
    ]:
        ran = [0.0]
        inner = Set()
        clock = SteadyClock(inner, recorded, partial(ran.__getitem__, 0))
        off_s = clock.start_at(there)
        assert (clock.now(), off_s) == (begins, max(1000.0, recorded) - there)
        ran[0] += 50.0
        inner.shown += 50.0
        assert clock.now() == begins + 50.0


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
