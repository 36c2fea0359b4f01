"""Varies one constant of our policy at a time: is the shipped value near its best?"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from statistics import fmean
from typing import Any

from tpuherd_lab.capacity import set_capacities
from tpuherd_lab.compare_policies import NOTICE_S, SetSource, check_name
from tpuherd_lab.constants import FAST, Constants, add_faults
from tpuherd_lab.engine_run import EngineCase, run_engine

SAVES, TRAINING = "tpuherd_host.train.save_interval", "tpuherd_lab.training_progress"
BIDDING = "tpuherd.planner.bidding"
PROGRESS, ZONES = "tpuherd.planner.gang_progress", "tpuherd.history.apply_zone_events"
WITH_FAULTS = add_faults(FAST)
WITH_NOTICE = replace(FAST, notice_s=NOTICE_S)


@dataclass(frozen=True, slots=True)
class Factor:
    """A constant, the values to try, and where it is: in a module, a limit of the job, or a field.

    The shipped value is among the values: it is read, not written here.
    """

    about: str
    place: str  #: module:NAME, limit:name or case:name
    values: tuple[float | None, ...]
    constants: Constants = FAST

    def shipped_value(self) -> Any:
        kind, _, name = self.place.partition(":")
        if kind == "limit":
            return getattr(blank_case().limits, name)
        if kind == "case":
            return getattr(blank_case(), name)
        return getattr(import_module(kind), name)

    @contextmanager
    def set_value(self, case: EngineCase, value: Any) -> Iterator[EngineCase]:
        """Yield the case with this value; a module has its own again afterwards."""
        kind, _, name = self.place.partition(":")
        if kind == "limit":
            yield replace(case, limits=replace(case.limits, **{name: value}))
        elif kind == "case":
            yield replace(case, **{name: value})
        else:
            module, before = import_module(kind), self.shipped_value()
            setattr(module, name, value)
            try:
                yield case
            finally:
                setattr(module, name, before)


FACTORS: Mapping[str, Factor] = {
    "hedge": Factor("zones that are bid for at once; all, if none", "case:hedge", (1, 2, 3)),
    "rivals": Factor(
        "bids kept beside the granted one until a node is READY", f"{BIDDING}:RIVALS_MAX", (0, 1, 8)
    ),
    "look_s": Factor(
        "seconds between looks while a node is held", "case:look_s", (3.0, 10.0, 20.0, 60.0)
    ),
    "save_every_s": Factor(
        "seconds between saves; by the rule of Run, if none",
        "case:fixed_interval_s",
        (60, 120, 240, 480, 900, 1800),
    ),
    "life_s": Factor("assumed life of a node", f"{SAVES}:LIFE_S", (900, 1800, 7200, 14400)),
    "longest_s": Factor(
        "most between two saves", f"{SAVES}:LONGEST_S", (300, 900, 3600), WITH_NOTICE
    ),
    "cost_times": Factor(
        "least between two saves, in times of what one costs", f"{SAVES}:COST_TIMES_MIN", (3, 30)
    ),
    "early_steps": Factor("steps until the first save", f"{TRAINING}:EARLY", (1, 20, 100)),
    "lives_kept": Factor("lives of nodes that are kept for a zone", f"{ZONES}:KEPT", (3, 10, 100)),
    "stall_s": Factor(
        "no step for so long is a stall", "limit:stall_s", (120, 300, 1200), WITH_FAULTS
    ),
    "hold_s": Factor(
        "wait for the cloud's word after an end", f"{PROGRESS}:HOLD_S", (5, 60), WITH_FAULTS
    ),
    "notice_grace_s": Factor(
        "to save after a notice", "limit:notice_grace_s", (5, 15, 29), WITH_NOTICE
    ),
    "notice_end_s": Factor(
        "from that grace to the end of the attempt", f"{PROGRESS}:NOTICE_S", (1, 30), WITH_NOTICE
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRow:
    """The mean goodput with one value."""

    factor: str
    traces: str
    value: float | None
    shipped: bool
    goodput: float


def blank_case() -> EngineCase:
    return EngineCase(
        policy="tpuherd", traces="", seed=1, gang=1, length_s=0.0, zones=(), constants=FAST
    )


def find_factors(names: Sequence[str]) -> tuple[str, ...]:
    """Return these factors, or all for `all`; raises PolicyError."""
    if "all" in names:
        return tuple(FACTORS)
    return tuple(check_name(name, FACTORS, "constant") for name in names)


def sweep_factor(name: str, source: SetSource, seeds: int) -> list[SweepRow]:
    """Return a row for each value, the shipped one first."""
    factor = FACTORS[name]
    shipped = factor.shipped_value()
    rows = []
    for value in (shipped, *(one for one in factor.values if one != shipped)):
        found = []
        for seed in range(1, seeds + 1):
            traces = source.load_set(seed)
            case = replace(
                blank_case(),
                traces=traces.name,
                seed=seed,
                gang=traces.gang,
                length_s=traces.length_s,
                zones=set_capacities(traces, seed),
                constants=factor.constants,
            )
            with factor.set_value(case, value) as changed:
                found.append(run_engine(changed).goodput)
        rows.append(
            SweepRow(
                factor=name,
                traces=source.name,
                value=value,
                shipped=value == shipped,
                goodput=fmean(found),
            )
        )
    return rows


def sweep_lines(rows: Sequence[SweepRow]) -> Iterator[str]:
    """Yield a line for each value, with the points that it gains or loses."""
    shipped = 0.0
    for row in rows:
        if row.shipped:
            shipped = row.goodput
            yield f"{row.factor}: {FACTORS[row.factor].about} ({row.traces})"
        value = "none" if row.value is None else f"{row.value:g}"
        change = "  shipped" if row.shipped else f"{100 * (row.goodput - shipped):+9.2f}"
        yield f"  {value:>7}  {100 * row.goodput:6.2f}% {change}"
