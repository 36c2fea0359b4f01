"""Storms over jobs: random weather, kills, cuts and changes; all of them with `make storm`."""

from dataclasses import replace
from typing import Any

import pytest

from tests.simulated.engine_storm import again
from tests.simulated.engine_storms import stormy
from tpuherd.engine import loop
from tpuherd.planner.plan import plan, plan_round
from tpuherd.planner.settled_slots import SettledSlots

SEEDS = (3, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_storm_all_jobs_are_as_submitted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each round, what is taken over from the round before is what would be planned anew."""
    settled, others = 0, list[str]()

    def checked(
        desired: Any, observed: Any, history: Any, now: float, before: SettledSlots
    ) -> tuple[Any, SettledSlots]:
        nonlocal settled
        found, after = plan_round(desired, observed, history, now, before)
        anew = plan(desired, observed, history, now)
        settled += sum(after.slots[name] is one for name, one in before.slots.items()
                       if name in after.slots)  # fmt: skip
        same = replace(found, states={}, wake_at=anew.wake_at) == replace(anew, states={})
        if not same or found.wake_at > anew.wake_at:  # a stall is due later with each sign of life
            others.append(f"at {now}: {found} instead of {anew}")
        return found, after

    monkeypatch.setattr(loop, "plan_round", checked)
    found = stormy(seed)
    assert not found, "\n".join([again(("storm", (str(seed),))), *found])
    assert not others, others[0]
    assert settled
