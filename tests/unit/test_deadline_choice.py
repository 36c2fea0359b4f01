"""What a job with a deadline wants: it waits while there is time, and is never late by choice."""

from dataclasses import replace
from itertools import product

import pytest

from tpuherd.planner.deadline_choice import (
    DeadlineFacts,
    DeadlineMode,
    NodeTier,
    choose_deadline_mode,
)

HOUR = 3600.0


def facts(on: NodeTier = NodeTier.NONE, **hours: float) -> DeadlineFacts:
    known = {"left": 30.0, "work": 20.0, "start": 0.1, "react": 0.0} | hours
    return DeadlineFacts(
        left_s=known["left"] * HOUR,
        work_s=known["work"] * HOUR,
        start_s=known["start"] * HOUR,
        react_s=known["react"] * HOUR,
        pace=20 / 30.0,
        on=on,
    )


@pytest.mark.parametrize(
    ("on", "left", "mode"),
    [
        (NodeTier.NONE, 30.3, DeadlineMode.WAIT),  # a little ahead of 20 h in 30 h
        (NodeTier.NONE, 30.19, DeadlineMode.CATCH_UP),
        (NodeTier.NONE, 20.3, DeadlineMode.CATCH_UP),
        (NodeTier.NONE, 20.1, DeadlineMode.FIRM),
        (NodeTier.SPOT, 20.3, DeadlineMode.WAIT),  # never left for no reason
        (NodeTier.SPOT, 20.15, DeadlineMode.WAIT),
        (NodeTier.SPOT, 20.05, DeadlineMode.FIRM),
        (NodeTier.FIRM, 30.3, DeadlineMode.CATCH_UP),  # it is given back when there is spot
        (NodeTier.FIRM, 20.3, DeadlineMode.CATCH_UP),
        (NodeTier.FIRM, 20.1, DeadlineMode.FIRM),
        (NodeTier.NONE, -1.0, DeadlineMode.FIRM),
    ],
)  # fmt: skip
def test_the_mode_by_time_left(on: NodeTier, left: float, mode: DeadlineMode) -> None:
    assert choose_deadline_mode(facts(on, left=left)) is mode


def test_firm_keeps_two_starts_and_the_time_to_react() -> None:
    """⇔: a job is told to stay on on-demand exactly when a loss could make it late."""
    for left, start, react, on in product(
        (20.0, 20.21, 20.52, 21.0, 25.0), (0.0, 0.1, 0.4), (0.0, 0.05, 0.3), NodeTier
    ):
        mode = choose_deadline_mode(facts(on, left=left, start=start, react=react))
        starts = 1 if on is NodeTier.SPOT else 2
        assert (mode is DeadlineMode.FIRM) == (
            (left - 20.0) * HOUR < (starts * start + react) * HOUR
        )


def test_a_job_that_was_told_to_stay_on_demand_is_not_told_to_leave() -> None:
    """On on-demand the slack stays as it is, and with it the mode; so it does on spot."""
    for on in (NodeTier.SPOT, NodeTier.FIRM):
        for slack in (0.05, 0.15, 0.25, 5.0):
            modes = {
                choose_deadline_mode(facts(on, left=work + slack, work=work))
                for work in (20.0, 10.0, 1.0)
            }
            assert len(modes) == 1, (on, slack)


def test_more_time_never_costs_more() -> None:
    order = [DeadlineMode.FIRM, DeadlineMode.CATCH_UP, DeadlineMode.WAIT]
    for on in NodeTier:
        found = [choose_deadline_mode(facts(on, left=left / 10)) for left in range(150, 400)]
        assert [order.index(mode) for mode in found] == sorted(order.index(mode) for mode in found)
    assert choose_deadline_mode(replace(facts(), pace=1.0)) is DeadlineMode.WAIT
