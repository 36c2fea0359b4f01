"""Compares policies with a deadline, with each other and with the cheapest way there is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from statistics import fmean, stdev

from tpuherd_lab.deadline_optimum import bound_deadline_cost
from tpuherd_lab.deadline_runs import (
    DEADLINE_POLICIES,
    HOUR_S,
    DeadlineRun,
    DeadlineTask,
    DeadlineWindow,
    run_deadline,
)
from tpuherd_lab.deadline_windows import read_deadline_windows

WORK_H = 48.0
DEADLINES_H = (52.0, 70.0)
STARTS_H = (0.05, 0.2)  #: Can't Be Late's restart overheads
EVERY = 3  #: of the windows, where each zone stands alone
NORMAL = 1.96  #: 95 %
OPTIMUM = "optimum"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineRow:
    """One policy at one deadline: means over all windows, with 95 % confidence."""

    scope: str  #: "all zones", or "one zone"
    deadline_h: float
    start_h: float
    policy: str
    windows: int
    dollars: float
    plus_minus: float
    ratio: float  #: of the mean cost to that of the cheapest way
    missed: int
    firm_h: float = 0.0
    starts: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineCase:
    scope: str
    task: DeadlineTask
    groups: Sequence[Sequence[DeadlineWindow]]  #: those of one time, which are not independent


def run_deadline_study(folder: Path) -> tuple[DeadlineRow, ...]:
    """Run every policy on every window. Raises TraceError."""
    return tuple(row for case in list_cases(folder) for row in run_case(case))


def list_cases(folder: Path) -> Iterable[DeadlineCase]:
    for deadline_h in DEADLINES_H:
        windows = read_deadline_windows(folder, deadline_h * HOUR_S)
        alone = [single_zones(window) for window in windows[::EVERY]]
        for start_h in STARTS_H:
            task = DeadlineTask(
                work_s=WORK_H * HOUR_S, deadline_s=deadline_h * HOUR_S, start_s=start_h * HOUR_S
            )
            yield DeadlineCase(scope="one zone", task=task, groups=alone)
            if any(len(window.zones) > 1 for window in windows):
                groups = [[window] for window in windows]
                yield DeadlineCase(scope="all zones", task=task, groups=groups)


def single_zones(window: DeadlineWindow) -> list[DeadlineWindow]:
    return [replace(window, zones=(zone,)) for zone in window.zones]


def run_case(case: DeadlineCase) -> Iterable[DeadlineRow]:
    bounds = [
        [bound_deadline_cost(window, case.task).dollars for window in group]
        for group in case.groups
    ]
    cheapest = [fmean(group) for group in bounds]
    for name, policy in DEADLINE_POLICIES.items():
        runs = [
            [run_deadline(window, case.task, policy) for window in group] for group in case.groups
        ]
        yield summarize_runs(case, name, runs, fmean(cheapest))
    yield describe_row(case, OPTIMUM, cheapest, fmean(cheapest), 0)


def summarize_runs(
    case: DeadlineCase, name: str, runs: Sequence[Sequence[DeadlineRun]], cheapest: float
) -> DeadlineRow:
    every = [run for group in runs for run in group]
    missed = sum(run.ended_s == inf for run in every)
    means = [fmean(run.dollars for run in group) for group in runs]
    row = describe_row(case, name, means, cheapest, missed)
    return replace(
        row,
        firm_h=fmean(run.firm_s for run in every) / HOUR_S,
        starts=fmean(run.starts for run in every),
    )


def describe_row(
    case: DeadlineCase, name: str, means: Sequence[float], cheapest: float, missed: int
) -> DeadlineRow:
    spread = stdev(means) if len(means) > 1 else 0.0
    return DeadlineRow(
        scope=case.scope,
        deadline_h=case.task.deadline_s / HOUR_S,
        start_h=case.task.start_s / HOUR_S,
        policy=name,
        windows=sum(map(len, case.groups)),
        dollars=fmean(means),
        plus_minus=NORMAL * spread / sqrt(len(means)),
        ratio=fmean(means) / cheapest,
        missed=missed,
    )
