"""Every moment of a lifecycle fails in turn: here a sample, all of them with `make storm`.

A failure names the command that plays its history again.
"""

from collections.abc import Iterable

import pytest

from tests.simulated.engine_faults import Moment
from tests.simulated.engine_lifecycles import LIFECYCLES
from tests.simulated.engine_storm import again, case_of, play
from tests.simulated.engine_storms import pairs, seen, singles

STRIDE = 37  #: one moment in this many is tested, different ones in each lifecycle
PAIRS = 2


def wrong(lifecycle: str, histories: Iterable[Iterable[Moment]]) -> list[str]:
    """What went wrong in any of these, each with its command."""
    cases = [case_of(lifecycle, moments) for moments in histories]
    return [f"{again(case)}: {found}" for case in cases if (found := play(case)[1])]


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_a_lifecycle_without_faults_has_many_calls_that_can_fail(lifecycle: str) -> None:
    mischief = seen(lifecycle)
    assert len(mischief.requests) > 20 and len(mischief.places) > 60 and len(mischief.calls) > 4


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_no_single_fault_is_fatal(lifecycle: str) -> None:
    first = list(LIFECYCLES).index(lifecycle)
    chosen = singles(lifecycle, 1)[first::STRIDE]
    assert not wrong(lifecycle, ([one] for one in chosen))


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_no_pair_of_faults_is_fatal(lifecycle: str) -> None:
    assert not wrong(lifecycle, pairs(lifecycle, PAIRS, seed=1))
