"""Computes how often to save by Young's rule from the cost of a save and the life of nodes."""

from dataclasses import dataclass
from math import sqrt
from statistics import median

LIFE_S = 3600.0  #: the assumed life of a spot node before any is observed
LONGEST_S = 1800.0
COST_TIMES_MIN = 10.0  #: saving never takes more than a tenth of the time
COST_S_MIN = 0.01
REMEMBERED = 5


def parse_node_life(text: str) -> float:
    """Return how long nodes live in this zone, as the engine observed."""
    return float(text) if text.isdecimal() and int(text) else LIFE_S


def mean_life_s(trained_s: float, losses: int, usual: float = LIFE_S) -> float:
    """Return the mean time between two losses of work, updated by this run's own."""
    return (usual + trained_s) / (1 + losses)


def count_losses(attempt: int, saved_by: int, losses: int | None, *, at_end: bool) -> int:
    """Return how many attempts of a run have lost work when `attempt` begins.

    It resumes from a checkpoint of attempt `saved_by`, which knew of `losses` before its own.
    `at_end`: that attempt saved all when it was told to stop, and lost nothing.
    """
    before = max(0, saved_by - 1) if losses is None else losses
    return before + max(0, attempt - saved_by - at_end)


def save_interval_s(cost_s: float, life: float, took_s: float = 0.0) -> float:
    """Return the seconds of training between two saves, each of which takes `took_s`."""
    cost_s = max(cost_s, COST_S_MIN)
    best = sqrt(2 * cost_s * life)
    return max(min(best, LONGEST_S), COST_TIMES_MIN * cost_s, took_s)


@dataclass(kw_only=True, slots=True)
class SaveCosts:
    """What the last saves cost, and how long a step takes."""

    blocked: list[float]  #: seconds the training stood still
    took: list[float]  #: seconds until it was on disk
    usual_s: float = LIFE_S  #: how long nodes last

    def add_blocked(self, blocked_s: float) -> None:
        self.blocked = [*self.blocked, blocked_s][-REMEMBERED:]

    def add_duration(self, took_s: float) -> None:
        self.took = [*self.took, took_s][-REMEMBERED:]

    def steps_until_save(self, step_s: float, trained_s: float, losses: int) -> int:
        cost = median(self.blocked) if self.blocked else 0.0
        took = median(self.took) if self.took else 0.0
        wanted = save_interval_s(cost, mean_life_s(trained_s, losses, self.usual_s), took)
        return max(1, round(wanted / max(step_s, 1e-6)))
