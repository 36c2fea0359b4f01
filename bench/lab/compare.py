"""Runs policies on sets of traces: a row a policy, window and set."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from statistics import fmean

from bench.lab.account import BUCKETS, PolicyRun, merge_runs
from bench.lab.bounds import Bounds, find_bounds, zone_groups
from bench.lab.capacity import set_capacities
from bench.lab.constants import FAST, NAIVE, SLOW, Constants
from bench.lab.engine_run import EngineCase, run_engine
from bench.lab.peers import MODELS, Scene, run_peer
from bench.lab.traces import TraceSet

NOTICE_S = 30.0
#: Our policies: between which zones each may move, and whether it gets a notice.
OURS: Mapping[str, tuple[str, bool]] = {
    "tpuherd": ("all", False),
    "tpuherd-region": ("region", False),
    "tpuherd-1zone": ("zone", False),
    "tpuherd+notice": ("all", True),
}
POLICIES = (*OURS, *MODELS)
#: Every policy has its own tool's set-up and saves, or all have a user's slow ones.
STARTS = ("own", "slow")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRow:
    """One policy on one set of traces, over all seeds."""

    policy: str
    traces: str  #: the set
    window: tuple[float, float]  #: of the traces' time, in seconds
    start: str
    seeds: int
    ratio: float  #: of the bound over all zones
    ratio_range: tuple[float, float]  #: the least and the most of the seeds
    bound: float
    own_ratio: float  #: of the bound over the zones that it may use
    goodput: float
    badput: Mapping[str, float]  #: share of the wanted time, by what it went to


def scope_of(policy: str) -> str:
    return OURS[policy][0] if policy in OURS else MODELS[policy][1]


def constants_of(policy: str, start: str) -> Constants:
    """Return what a policy has; a fast set-up is part of tpuherd."""
    found = SLOW if start == "slow" else FAST if policy in OURS else NAIVE
    return replace(found, notice_s=NOTICE_S) if policy in OURS and OURS[policy][1] else found


def run_policy(policy: str, traces: TraceSet, seed: int, constants: Constants) -> PolicyRun:
    """Run one; a policy that knows one zone or region runs in each, and the runs are summed."""
    runs = []
    for zones in zone_groups(set_capacities(traces, seed), scope_of(policy)):
        if policy in OURS:
            case = EngineCase(
                policy=policy, seed=seed, gang=traces.gang, length_s=traces.length_s,
                zones=tuple(zones), constants=constants,
            )  # fmt: skip
            runs.append(run_engine(case))
        else:
            scene = Scene(
                policy=policy, zones=tuple(zones), constants=constants, seed=seed,
                length_s=traces.length_s,
            )  # fmt: skip
            runs.append(run_peer(scene).close_books())
    return runs[0] if len(runs) == 1 else merge_runs(runs)


def run_row(seeds: int, start: str, cell: tuple[TraceSet, str]) -> ResultRow:
    """Run a policy on a set with every seed."""
    traces, policy = cell
    constants = constants_of(policy, start)
    runs = [run_policy(policy, traces, seed, constants) for seed in range(1, seeds + 1)]
    bounds: list[Bounds] = [find_bounds(traces, seed) for seed in range(1, seeds + 1)]
    ratios = [
        run.goodput / one.all if one.all else 0.0 for run, one in zip(runs, bounds, strict=True)
    ]
    own = [float(getattr(one, scope_of(policy))) for one in bounds]
    wanted = sum(run.wanted_s for run in runs)
    return ResultRow(
        policy=policy,
        traces=traces.name,
        window=(0.0, traces.length_s),
        start=start,
        seeds=seeds,
        ratio=fmean(ratios),
        ratio_range=(min(ratios), max(ratios)),
        bound=fmean(one.all for one in bounds),
        own_ratio=fmean(
            run.goodput / one if one else 0.0 for run, one in zip(runs, own, strict=True)
        ),
        goodput=fmean(run.goodput for run in runs),
        badput={name: sum(run.badput[name] for run in runs) / wanted for name in BUCKETS},
    )


def compare_policies(
    sets: Sequence[TraceSet], policies: Sequence[str], *, start: str, seeds: int, processes: int
) -> Iterator[ResultRow]:
    """Yield a row for each set and policy; they do not depend on the number of processes."""
    cells = [(traces, policy) for traces in sets for policy in policies]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(run_row, seeds, start), cells)
