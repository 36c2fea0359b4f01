"""What runs of one policy say together: means with intervals, quantiles, calls, dollars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tpuherd_lab.bounds import Bounds
from tpuherd_lab.policy_run import BUCKETS, PolicyRun, Recovery, digest_of
from tpuherd_sim.weather.storm import random_stream

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and where it may lie, with 95 % confidence."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Quantiles:
    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRow:
    """One policy on one set of traces, over all seeds."""

    policy: str
    traces: str
    scope: str  #: the zones it may use: "zone", "region" or "all"
    seeds: int
    goodput: Estimate
    ratio: Estimate  #: of the bound over all zones
    own_ratio: Estimate  #: of the bound over the zones it may use
    bound: float
    own_bound: float
    badput: Mapping[str, float]  #: share of the wanted time by bucket
    controller_badput: float
    detect_s: Quantiles | None  #: None: nothing was lost
    replace_s: Quantiles | None
    first_step_s: Quantiles | None
    recovery_s: Quantiles | None  #: to the first step, less the time without capacity
    losses_per_day: float
    redone_share: float  #: steps computed twice
    billed_per_productive: float
    dollars_per_day: float
    egress_gb_per_day: float
    hops_per_day: float
    hedge_waste: float  #: share of the billed time
    calls_per_day: Mapping[str, float]  #: of a slice, by method
    peak_calls_per_minute: int
    leaked_s: float
    orphans: int
    peak_nodes: int
    digest: str


def summarize_runs(
    runs: Sequence[PolicyRun], bounds: Mapping[int, Bounds], scope: str = "all"
) -> ResultRow:
    """Return the row of runs of one policy on one set; `bounds` has those of each seed."""
    first = runs[0]
    own = {seed: float(getattr(one, scope)) for seed, one in bounds.items()}
    losses = [loss for run in runs for loss in run.losses]
    wanted, billed = sum(run.wanted_s for run in runs), sum(run.billed_s for run in runs)
    productive = sum(run.productive_s for run in runs)
    days = sum(run.days for run in runs)
    return ResultRow(
        policy=first.policy,
        traces=first.traces,
        scope=scope,
        seeds=len(runs),
        goodput=estimate_mean([run.goodput for run in runs]),
        ratio=estimate_mean([divide(run.goodput, bounds[run.seed].all) for run in runs]),
        own_ratio=estimate_mean([divide(run.goodput, own[run.seed]) for run in runs]),
        bound=fmean(bounds[run.seed].all for run in runs),
        own_bound=fmean(own[run.seed] for run in runs),
        badput={name: sum(run.badput.get(name, 0.0) for run in runs) / wanted for name in BUCKETS},
        controller_badput=fmean(run.controller_badput for run in runs),
        **loss_quantiles(losses),
        losses_per_day=len(losses) / days,
        redone_share=sum(run.steps_lost_s for run in runs) / wanted,
        billed_per_productive=divide(billed, productive),
        dollars_per_day=sum(run.dollars for run in runs) / days,
        egress_gb_per_day=sum(run.egress_gb for run in runs) / days,
        hops_per_day=sum(run.hops for run in runs) / days,
        hedge_waste=divide(sum(run.hedge_waste_s for run in runs), billed),
        calls_per_day=daily_calls(runs, days),
        peak_calls_per_minute=max(run.peak_calls_per_minute for run in runs),
        leaked_s=sum(run.leaked_s for run in runs),
        orphans=sum(run.orphans for run in runs),
        peak_nodes=max(run.peak_nodes for run in runs),
        digest=digest_of(run.digest for run in runs),
    )


def loss_quantiles(losses: Sequence[Recovery]) -> dict[str, Quantiles | None]:
    """Return how long it took from a loss to its detection, a READY node and a new step."""

    def since_loss(moment: str) -> Quantiles | None:
        ends = [(getattr(loss, moment), loss.lost_at) for loss in losses]
        return find_quantiles([end - lost_at for end, lost_at in ends if end is not None])

    recoveries = [loss.with_capacity_s for loss in losses]
    return {
        "detect_s": since_loss("detected_at"),
        "replace_s": since_loss("replaced_at"),
        "first_step_s": since_loss("first_step_at"),
        "recovery_s": find_quantiles([took for took in recoveries if took is not None]),
    }


def daily_calls(runs: Sequence[PolicyRun], days: float) -> dict[str, float]:
    methods = sorted({method for run in runs for method in run.api_calls})
    return {method: sum(run.api_calls.get(method, 0) for run in runs) / days for method in methods}


def divide(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def estimate_mean(values: Sequence[float]) -> Estimate:
    low, high = bootstrap_interval(values)
    return Estimate(fmean(values), low, high)


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return where the mean lies with 95 % confidence: quantiles of the means of resamples."""
    if len(values) == 1:
        return values[0], values[0]
    dice = random_stream(seed, "bootstrap", len(values))
    means = sorted(
        fmean(values[int(dice.random_fraction() * len(values))] for _ in values)
        for _ in range(RESAMPLES)
    )
    tail = (1 - CONFIDENCE) / 2
    return quantile(means, tail), quantile(means, 1 - tail)


def find_quantiles(values: Sequence[float]) -> Quantiles | None:
    """Return the mean and quantiles; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return Quantiles(fmean(ordered), *(quantile(ordered, share) for share in (0.5, 0.95, 0.99)))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of sorted values lies, between its neighbours."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
