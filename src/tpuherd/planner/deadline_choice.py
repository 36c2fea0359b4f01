"""Decide whether a job with a deadline waits for nodes that may be taken away, or pays for others.

Spot nodes are cheap and may be lost at any time; on-demand nodes are dear and stay. What time is
left beyond the work is the slack: waiting for spot uses it up, and so does every start.

1. The safety net. Once the slack covers no more than the starts that one more loss would take, the
   job works on on-demand, to the end. Nothing below goes past it.
2. Waiting. A job without a node waits for spot while it is ahead of an even pace: the one that
   began at its submission and would be done two starts before the deadline.
3. Catching up. Else it works on on-demand, and returns to spot as soon as there is some.

Keeping an even pace is Uniform Progress (Wu et al., Can't Be Late, NSDI 2024). It differs here in
when to return: at once, not when the job is ahead again. The policy laboratory compares the two
with this same function.
"""

from dataclasses import dataclass
from enum import StrEnum

STARTS_KEPT = 2.0  #: for a move to spot, and for one back to on-demand


class NodeTier(StrEnum):
    """What kind of node a job works on, or is about to."""

    NONE = "none"
    SPOT = "spot"  #: it may be taken away: spot, preemptible
    FIRM = "firm"  #: it stays: on-demand, reserved


class DeadlineMode(StrEnum):
    """Which nodes a job with a deadline wants now."""

    WAIT = "wait"  #: spot only, and wait for it
    CATCH_UP = "catch up"  #: on-demand until there is spot
    FIRM = "firm"  #: on-demand, to the end


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineFacts:
    """What the choice depends on."""

    left_s: float  #: until the deadline
    work_s: float  #: that is left, on a node that works without a break
    start_s: float  #: from a decision for another node until work goes on there
    pace: float  #: of even work, from the submission to two starts before the deadline
    on: NodeTier = NodeTier.NONE
    react_s: float = 0.0  #: until the next decision
    lag_s: float = 0.0  #: how far it may be behind that pace: spot takes a while to be granted

    @property
    def slack_s(self) -> float:
        return self.left_s - self.work_s


def choose_deadline_mode(facts: DeadlineFacts) -> DeadlineMode:
    starts = 1.0 if facts.on is NodeTier.SPOT else STARTS_KEPT
    if facts.slack_s < starts * facts.start_s + facts.react_s:
        return DeadlineMode.FIRM
    match facts.on:
        case NodeTier.SPOT:
            return DeadlineMode.WAIT
        case NodeTier.FIRM:
            return DeadlineMode.CATCH_UP
        case _:
            return DeadlineMode.WAIT if is_ahead(facts) else DeadlineMode.CATCH_UP


def is_ahead(facts: DeadlineFacts) -> bool:
    """Whether the job is ahead of its even pace."""
    return facts.work_s <= facts.pace * (even_time(facts.left_s, facts.start_s) + facts.lag_s)


def even_time(left_s: float, start_s: float) -> float:
    """The part of the time to the deadline in which an even pace does all of the work."""
    return left_s - STARTS_KEPT * start_s


def even_pace(total_s: float, time_s: float, start_s: float) -> float:
    """How much work a second an even pace does, of all the work in all the time to the deadline."""
    return min(1.0, total_s / max(1.0, even_time(time_s, start_s)))
