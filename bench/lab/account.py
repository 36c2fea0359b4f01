"""What one policy did on one set of traces with one seed: every second accounted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Why a wanted second was not productive.
QUEUE = "queue_first"  #: before the first node was READY
CAPACITY = "capacity_wait"  #: no allowed zone had capacity
CONTROLLER = "controller_gap"  #: capacity was there: detection, requests, deletion, creation
SETUP = "host_setup"
RESTART = "restart"  #: from the start of the script to its first step
SAVE = "save"  #: blocked by saves
WASTED = "wasted"  #: work that no checkpoint had
BUCKETS = (QUEUE, CAPACITY, CONTROLLER, SETUP, RESTART, SAVE, WASTED)
#: Where the sums of a run may differ from the wanted time: rounding of floats, no more.
TOLERANCE_S = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRun:
    """The whole account of a run."""

    policy: str
    wanted_s: float  #: seconds in which the job wanted to train
    productive_s: float
    badput: Mapping[str, float]  #: seconds by bucket

    def __post_init__(self) -> None:
        total = self.productive_s + sum(self.badput[bucket] for bucket in BUCKETS)
        if len(self.badput) != len(BUCKETS) or abs(total - self.wanted_s) > TOLERANCE_S:
            raise ValueError(f"{self.policy}: {total:.3f} s are accounted of {self.wanted_s:.3f} s")

    @property
    def goodput(self) -> float:
        return self.productive_s / self.wanted_s


def merge_runs(runs: Sequence[PolicyRun]) -> PolicyRun:
    """Return the sum of runs of one policy in one zone or region each, as one run of all."""
    return PolicyRun(
        policy=runs[0].policy,
        wanted_s=sum(run.wanted_s for run in runs),
        productive_s=sum(run.productive_s for run in runs),
        badput={name: sum(run.badput[name] for run in runs) for name in BUCKETS},
    )
