"""Which checkpoints are kept: the newest, the best by a metric, and milestones for ever."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from tpuherd_host.train.checkpoint_commit import Commit
from tpuherd_host.train.sample_split import InvalidSetup

BETTER = ("lower", "higher")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """What stays when newer checkpoints are complete. `Run(keep=3)` is `Retention(newest=3)`.

    A milestone is saved at its step and never removed. The best are those whose metric, as given
    to `run.keep`, is the lowest (or highest).
    """

    newest: int = 2
    milestones: int | Collection[int] = ()  #: every so many steps, or at these steps
    best: str = ""  #: the metric's name
    best_count: int = 1
    better: str = "lower"

    def __post_init__(self) -> None:
        each = (self.milestones,) if isinstance(self.milestones, int) else self.milestones
        if any(not isinstance(step, int) or step < 1 for step in each):
            raise InvalidSetup(f"milestones={self.milestones!r}: steps are numbers from 1 on")
        if self.better not in BETTER:
            raise InvalidSetup(f"better={self.better!r} is neither 'lower' nor 'higher'")
        for name in ("newest", "best_count"):
            if getattr(self, name) < 1:
                raise InvalidSetup(f"{name}={getattr(self, name)!r}: at least one is kept")

    def has_milestone(self, after: int, until: int) -> bool:
        """Whether a milestone is among the steps `after`+1 … `until`."""
        if isinstance(self.milestones, int):
            return until // self.milestones > after // self.milestones
        return any(after < step <= until for step in self.milestones)

    def best_steps(self, metrics: Mapping[int, Mapping[str, float]]) -> list[int]:
        """Return the best steps, the best first; of equal ones the earlier is better."""
        sign = -1.0 if self.better == "higher" else 1.0
        judged = sorted(
            (sign * values[self.best], step)
            for step, values in metrics.items()
            if self.best in values and isfinite(values[self.best])
        )
        return [step for _, step in judged[: self.best_count]]

    def retained_steps(self, commits: Iterable[Commit]) -> set[int]:
        """Return which of these complete checkpoints are kept."""
        every = {commit.step: commit for commit in commits}
        milestones = {step for step, commit in every.items() if commit.milestone}
        best = self.best_steps({step: commit.metrics for step, commit in every.items()})
        return {*sorted(every)[-self.newest :], *milestones, *best}
