"""What one policy did on one set of traces with one seed: every second and call accounted."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Why a wanted second was not productive.
QUEUE = "queue_first"  #: before the first node was READY
CAPACITY = "capacity_wait"  #: no allowed zone had capacity
CONTROLLER = "controller_gap"  #: capacity was there: detection, requests, deletion, creation
SETUP = "host_setup"
RESTART = "restart"  #: from the start of the script to its first step
SAVE = "save"  #: blocked by saves
WASTED = "wasted"  #: work that no checkpoint had
DOWN = "process_down"  #: the script had crashed and nothing had started it again
HUNG = "hung"
BUCKETS = (QUEUE, CAPACITY, CONTROLLER, SETUP, RESTART, SAVE, WASTED, DOWN, HUNG)
#: What no controller can change.
BLAMELESS = frozenset({QUEUE, CAPACITY})
DAY = 86400.0
#: Where the sums of a run may differ from the wanted time: rounding of floats, no more.
TOLERANCE_S = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """From the loss of a node to the first new step; None: not before the end."""

    lost_at: float
    detected_at: float | None = None
    replaced_at: float | None = None  #: another node was READY
    first_step_at: float | None = None
    without_capacity_s: float = 0.0  #: how much of it no allowed zone had capacity

    @property
    def capacity_was_there(self) -> bool:
        return self.without_capacity_s == 0.0

    @property
    def with_capacity_s(self) -> float | None:
        """How long it took, less the time in which it was impossible."""
        if self.first_step_at is None:
            return None
        return self.first_step_at - self.lost_at - self.without_capacity_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRun:
    """The whole account of a run."""

    policy: str
    traces: str
    seed: int
    wanted_s: float  #: seconds in which the job wanted to train
    productive_s: float
    badput: Mapping[str, float]
    losses: tuple[Recovery, ...] = ()
    steps_lost_s: float = 0.0  #: work done twice
    billed_s: float = 0.0  #: seconds of slices
    hedge_waste_s: float = 0.0  #: billed seconds of slices that were never used
    dollars: float = 0.0  #: with egress
    hops: int = 0  #: moves to another region
    egress_gb: float = 0.0
    api_calls: Mapping[str, int] = field(default_factory=dict)
    peak_calls_per_minute: int = 0
    leaked_s: float = 0.0  #: seconds of slices that nobody knew of
    orphans: int = 0  #: nodes left at the end
    peak_nodes: int = 1  #: slices at once
    digest: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.badput) - set(BUCKETS):
            raise ValueError(f"{self.policy}: no such buckets: {sorted(unknown)}")
        total = self.productive_s + sum(self.badput.values())
        if abs(total - self.wanted_s) > TOLERANCE_S:
            raise ValueError(
                f"{self.policy} on {self.traces}: {total:.3f} s are accounted of"
                f" {self.wanted_s:.3f} s"
            )

    @property
    def goodput(self) -> float:
        return self.productive_s / self.wanted_s if self.wanted_s else 0.0

    @property
    def controller_badput(self) -> float:
        """The share of time lost although an allowed zone had capacity."""
        lost = sum(spent for bucket, spent in self.badput.items() if bucket not in BLAMELESS)
        return lost / self.wanted_s if self.wanted_s else 0.0

    @property
    def days(self) -> float:
        return self.wanted_s / DAY


def merge_runs(runs: Sequence[PolicyRun]) -> PolicyRun:
    """Return the sum of runs of one policy in one zone or region each, as one run of all."""
    calls: Counter[str] = Counter()
    badput: dict[str, float] = {}
    for run in runs:
        calls.update(run.api_calls)
        for bucket, spent in run.badput.items():
            badput[bucket] = badput.get(bucket, 0.0) + spent
    first = runs[0]
    return PolicyRun(
        policy=first.policy,
        traces=first.traces,
        seed=first.seed,
        wanted_s=sum(run.wanted_s for run in runs),
        productive_s=sum(run.productive_s for run in runs),
        badput=badput,
        losses=tuple(loss for run in runs for loss in run.losses),
        steps_lost_s=sum(run.steps_lost_s for run in runs),
        billed_s=sum(run.billed_s for run in runs),
        hedge_waste_s=sum(run.hedge_waste_s for run in runs),
        dollars=sum(run.dollars for run in runs),
        hops=sum(run.hops for run in runs),
        egress_gb=sum(run.egress_gb for run in runs),
        api_calls=dict(sorted(calls.items())),
        peak_calls_per_minute=max(run.peak_calls_per_minute for run in runs),
        leaked_s=sum(run.leaked_s for run in runs),
        orphans=sum(run.orphans for run in runs),
        peak_nodes=max(run.peak_nodes for run in runs),
        digest=digest_of(run.digest for run in runs),
    )


def digest_of(parts: Iterable[Any]) -> str:
    """Return a short hash of what happened: equal reruns have equal digests."""
    text = json.dumps(list(parts), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
