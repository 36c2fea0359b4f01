"""Which trials of a sweep are hopeless, by what all of them have told."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from statistics import median

from tpuherd.model.search import Search
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord

BRACKETS = 3
FACTOR = 3  #: of each three that come to a rung one goes on to the next


def prune_reason(search: Search, sweep: Sweep, trial: TrialRecord) -> str:
    """Why it is ended before its time; empty: it goes on."""
    if search.prune.rule == "none":
        return ""
    if trial.lost:
        last = "" if trial.step is None else f"; its last number was at step {trial.step}"
        return f"{search.metric} is NaN or infinite{last}"
    if search.prune.rule not in RULES or trial.step is None or trial.step < search.prune.warm_up:
        return ""
    others = [one for one in sweep.trials if one is not trial and one.how is not TrialEnd.FAILED]
    return RULES[search.prune.rule](search, trial, others)


def best_until(search: Search, trial: TrialRecord, step: int) -> float | None:
    """The best that it told up to that step; None: it has not come so far."""
    if not trial.points or trial.points[-1][0] < step:
        return None
    values = [value for at, value in trial.points if at <= step]
    return (max if search.goal == "maximize" else min)(values, default=None)


def median_reason(search: Search, trial: TrialRecord, others: Sequence[TrialRecord]) -> str:
    """Half of all have been better at this step."""
    assert trial.step is not None
    mine = best_until(search, trial, trial.step)
    theirs = [value for one in others if (value := best_until(search, one, trial.step)) is not None]
    if mine is None or len(theirs) < search.prune.after:
        return ""
    middle = median(theirs)
    if not is_worse(search, mine, middle):
        return ""
    return f"{search.metric} {mine:g} at step {trial.step}: the median of others is {middle:g}"


def halving_reason(
    search: Search, trial: TrialRecord, others: Sequence[TrialRecord], first: int | None = None
) -> str:
    """Of all that came to its rung it is not among the best third."""
    assert trial.step is not None
    rung = first or max(1, search.prune.warm_up)
    if trial.step < rung:
        return ""
    while rung * FACTOR <= trial.step:
        rung *= FACTOR
    mine = best_until(search, trial, rung)
    theirs = [value for one in others if (value := best_until(search, one, rung)) is not None]
    if mine is None or len(theirs) < search.prune.after:
        return ""
    better = sum(is_worse(search, mine, value) for value in theirs)
    stay = ceil((len(theirs) + 1) / FACTOR)
    if better < stay:
        return ""
    return f"{search.metric} {mine:g} at step {rung}: {better} of {len(theirs)} others were better"


def hyperband_reason(search: Search, trial: TrialRecord, others: Sequence[TrialRecord]) -> str:
    """Of three brackets each begins later than the one before: it may be that good starts lie."""
    mine = trial.number % BRACKETS
    rivals = [one for one in others if one.number % BRACKETS == mine]
    return halving_reason(search, trial, rivals, max(1, search.prune.warm_up) * FACTOR**mine)


def is_worse(search: Search, one: float, other: float) -> bool:
    """Whether the first is worse than the second."""
    return one < other if search.goal == "maximize" else one > other


RULES: Mapping[str, Callable[[Search, TrialRecord, Sequence[TrialRecord]], str]] = {
    "median": median_reason,
    "halving": halving_reason,
    "hyperband": hyperband_reason,
}
