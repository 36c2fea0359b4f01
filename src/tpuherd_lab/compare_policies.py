"""Runs every policy on every set of traces with every seed, in several processes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from tpuherd.near_names import near_names
from tpuherd_lab.bounds import Bounds, find_bounds, zone_groups
from tpuherd_lab.capacity import set_capacities
from tpuherd_lab.constants import FAST, SLOW, Constants, add_faults, own_constants
from tpuherd_lab.engine_run import EngineCase, run_engine
from tpuherd_lab.generator import GENERATED, generate_set
from tpuherd_lab.peers.registry import MODELS, POLICIES
from tpuherd_lab.policy_run import PolicyRun, merge_runs
from tpuherd_lab.statistics import ResultRow, summarize_runs
from tpuherd_lab.traces import TraceError, TraceSet, read_trace_folder

NOTICE_S = 30.0
#: Our policies: where each may run, and whether it gets a notice.
OURS: Mapping[str, tuple[str, bool]] = {
    "tpuherd": ("all", False),
    "tpuherd-region": ("region", False),
    "tpuherd-1zone": ("zone", False),
    "tpuherd+notice": ("all", True),
}
ALL_POLICIES = (*OURS, *MODELS)
#: The constants of each table: every policy's own, a user's slow start for all, own with faults.
OWN, SLOW_START, FAULTS = "own", "slow", "faults"


class PolicyError(Exception):
    """One sentence about a choice of policies or sets that makes no sense."""


@dataclass(frozen=True, slots=True)
class SetSource:
    """A set of traces: a folder, or a kind of capacity that is made from each seed."""

    name: str
    folder: Path | None = None

    def load_set(self, seed: int) -> TraceSet:
        if self.folder is None:
            return generate_set(self.name, seed)
        return next(one for one in load_folder(self.folder) if one.name == self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyStudy:
    """What is to be compared."""

    sources: tuple[SetSource, ...]
    policies: tuple[str, ...]
    seeds: int = 3
    tables: tuple[str, ...] = (OWN, SLOW_START)


@dataclass(frozen=True, slots=True)
class StudyCell:
    """One policy on one set with one seed; no policy: the bounds."""

    table: str
    source: SetSource
    seed: int
    policy: str


load_folder = cache(read_trace_folder)


def find_sources(folders: Iterable[Path], kinds: Iterable[str]) -> tuple[SetSource, ...]:
    """Return the sets of all folders and kinds; raises TraceError or PolicyError."""
    found = [SetSource(one.name, folder) for folder in folders for one in load_folder(folder)] + [
        SetSource(check_name(kind, GENERATED, "kind of capacity")) for kind in kinds
    ]
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TraceError(f"two sets of traces are called {twice}: rename a folder")
    return tuple(found)


def find_policies(names: Sequence[str]) -> tuple[str, ...]:
    """Return these policies, or all; raises PolicyError."""
    return tuple(dict.fromkeys(check_name(one, ALL_POLICIES, "policy") for one in names)) or (
        ALL_POLICIES
    )


def check_name(name: str, known: Iterable[str], what: str) -> str:
    if name in known:
        return name
    near = near_names(name, known)
    hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(known)}"
    raise PolicyError(f"there is no {what} {name!r}: {hint}")


def constants_of(table: str, policy: str) -> Constants:
    """Return the constants that a policy has in a table."""
    found = SLOW if table == SLOW_START else own_constants(policy)
    if policy in OURS and OURS[policy][1]:
        found = replace(found, notice_s=NOTICE_S)
    return add_faults(found) if table == FAULTS else found


def run_policy(policy: str, traces: TraceSet, seed: int, constants: Constants = FAST) -> PolicyRun:
    """Run one; a policy that knows one zone or region runs in each, and the runs are summed."""
    if policy in POLICIES:
        return POLICIES[policy](traces, seed, constants)
    runs = [
        run_engine(
            EngineCase(
                policy=policy,
                traces=traces.name,
                seed=seed,
                gang=traces.gang,
                length_s=traces.length_s,
                zones=tuple(zones),
                constants=constants,
            )
        )
        for zones in zone_groups(set_capacities(traces, seed), OURS[policy][0])
    ]
    return runs[0] if len(runs) == 1 else merge_runs(runs)


def run_cell(cell: StudyCell) -> PolicyRun | Bounds:
    traces = cell.source.load_set(cell.seed)
    if not cell.policy:
        return find_bounds(traces, cell.seed)
    return run_policy(cell.policy, traces, cell.seed, constants_of(cell.table, cell.policy))


def study_cells(study: PolicyStudy) -> list[StudyCell]:
    """Return all cells, those that take longest first."""
    cells = [
        StudyCell(table, source, seed, policy)
        for source in study.sources
        for seed in range(1, study.seeds + 1)
        for table in study.tables
        for policy in study.policies
    ]
    bounds = [
        StudyCell("", source, seed, "")
        for source in study.sources
        for seed in range(1, study.seeds + 1)
    ]
    return sorted(cells, key=lambda one: scope_of(one.policy) not in ("zone", "region")) + bounds


def scope_of(policy: str) -> str:
    return OURS[policy][0] if policy in OURS else MODELS[policy].scope


def run_study(
    study: PolicyStudy,
    *,
    processes: int = 1,
    tick: Callable[[int, int], None] = lambda at, of: None,
) -> Mapping[str, list[ResultRow]]:
    """Return the rows of each table; they do not depend on the number of processes."""
    cells = study_cells(study)
    results: dict[StudyCell, PolicyRun | Bounds] = {}
    for cell, result in zip(cells, run_cells(cells, processes), strict=True):
        results[cell] = result
        tick(len(results), len(cells))
    return {table: list(table_rows(study, table, results)) for table in study.tables}


def run_cells(cells: Sequence[StudyCell], processes: int) -> Iterator[PolicyRun | Bounds]:
    """Yield the results in the order of the cells."""
    with ExitStack() as stack:
        if processes > 1:
            pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
            yield from stack.enter_context(pool).map(run_cell, cells)
        else:
            yield from map(run_cell, cells)


def table_rows(
    study: PolicyStudy, table: str, results: Mapping[StudyCell, PolicyRun | Bounds]
) -> Iterator[ResultRow]:
    seeds = range(1, study.seeds + 1)
    for source in study.sources:
        found = {seed: results[StudyCell("", source, seed, "")] for seed in seeds}
        bounds = {seed: one for seed, one in found.items() if isinstance(one, Bounds)}
        for policy in study.policies:
            runs = [results[StudyCell(table, source, seed, policy)] for seed in seeds]
            kept = [run for run in runs if isinstance(run, PolicyRun)]
            yield summarize_runs(kept, bounds, scope_of(policy))
