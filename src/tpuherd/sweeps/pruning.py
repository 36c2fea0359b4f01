"""Decides which trials of a sweep to prune, from the metrics of all trials."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from statistics import median

from tpuherd.model.search import Search
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord

BRACKETS = 3
FACTOR = 3  #: one of this many trials at a rung continues


def prune_reason(search: Search, sweep: Sweep, trial: TrialRecord) -> str:
    """Return why to prune a trial, or "" to let it run."""
    if search.prune.rule == "none":
        return ""
    if trial.lost:
        last = "" if trial.step is None else f"; its last finite value was at step {trial.step}"
        return f"{search.metric} is NaN or infinite{last}"
    if search.prune.rule not in RULES or trial.step is None or trial.step < search.prune.warm_up:
        return ""
    others = [one for one in sweep.trials if one is not trial and one.how is not TrialEnd.FAILED]
    return RULES[search.prune.rule](search, trial, others)


def best_until(search: Search, trial: TrialRecord, step: int) -> float | None:
    """Return the best value up to that step; None if the trial has not reached it."""
    if not trial.points or trial.points[-1][0] < step:
        return None
    values = [value for at, value in trial.points if at <= step]
    return (max if search.goal == "maximize" else min)(values, default=None)


def median_reason(search: Search, trial: TrialRecord, others: Sequence[TrialRecord]) -> str:
    """Prune a trial that is worse than the median of the others at its step."""
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
    """Prune a trial that is not in the best third at its rung."""
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
    """Successive halving in three brackets that start later and later, to spare slow starters."""
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
