"""The results of `herd cost` and of its Python calls, like those in results.py."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpuherd.results import Recovery


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident(Recovery):
    """A loss of one of a job's slots."""

    slot: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineSpan:
    """A span of time in one state."""

    start: float  #: in seconds since 1970
    end: float  #: in seconds since 1970
    state: str  #: one of the [states](events.md#where-the-time-goes)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReport:
    """Where the time of one slot went."""

    slot: str  #: its name
    start: float  #: when it was submitted, in seconds since 1970
    end: float  #: its end, or now
    wanted_s: float  #: seconds during which it should run
    goodput: float | None  #: productive share of that, as far as it is known
    goodput_why: str  #: why that is not known, or for how long; empty: nothing ran, or all is known
    seconds: Mapping[str, float]  #: by state; they add up to the time from `start` to `end`
    money: Mapping[str, float]  #: dollars by state
    cost: float  #: dollars, by the catalogue's prices
    steps_lost: int  #: steps that were done twice
    spans: tuple[TimelineSpan, ...]  #: its whole time, in order


@dataclass(frozen=True, kw_only=True, slots=True)
class PartTimes:
    """How long one part of the recoveries took."""

    part: str  #: detect, queue, …; `all` is the whole
    p50: float  #: seconds: half of them took no longer
    p90: float  #: seconds: nine of ten took no longer
    worst: float  #: seconds
    total: float  #: seconds of all recoveries


@dataclass(frozen=True, kw_only=True, slots=True)
class JobReport:
    """Where a job's time and money went."""

    job: str  #: its name
    removed: bool  #: the job no longer exists
    now: float  #: when this was counted, in seconds since 1970
    start: float  #: when it was submitted, in seconds since 1970
    end: float  #: the end of its last slot, or now
    wanted_s: float  #: seconds during which its slots should run
    goodput: float | None  #: scheduling × runtime; null here and below: not known
    goodput_why: str  #: why that is not known, or for how long; empty: nothing ran, or all is known
    scheduling: float | None  #: share of the time wanted in which slots had a node
    runtime: float | None  #: share of that in which work counted
    program: float | None  #: time of a usual step, divided by the mean time of all
    seconds: Mapping[str, float]  #: by state, of all slots
    money: Mapping[str, float]  #: dollars by state
    cost: float  #: dollars, by the catalogue's prices
    per_hour: float  #: dollars an hour for the current nodes
    price_known: bool  #: false: some node's price is unknown, so all dollars are too low
    moved: float  #: dollars of `cost` for checkpoints that went to other regions and back
    steps_lost: int  #: steps that were done twice
    slots: tuple[SlotReport, ...]
    incidents: tuple[Incident, ...]  #: all losses, oldest first
    parts: tuple[PartTimes, ...]  #: of the recoveries that are over


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCost:
    """What one job has cost."""

    job: str  #: its name
    removed: bool  #: the job no longer exists
    total: float  #: dollars, with earlier jobs of its name
    today: float  #: dollars
    per_hour: float  #: dollars an hour for the current nodes
    price_known: bool  #: false: some node's price is unknown, so all dollars are too low
    max_cost: float | None  #: its limit in dollars; null: none
    forecast_day: float  #: more dollars until the end of the day, at the present rate
    forecast_month: float  #: more dollars until the end of the month, at the present rate
    limit_at: float | None  #: when it reaches its limit at this rate; null: it does not


@dataclass(frozen=True, kw_only=True, slots=True)
class DayCost:
    """What one day has cost."""

    date: str  #: as 2026-01-31, by the clock of this machine
    start: float  #: in seconds since 1970
    end: float  #: in seconds since 1970
    cost: float  #: dollars
    jobs: Mapping[str, float]  #: dollars by job


@dataclass(frozen=True, kw_only=True, slots=True)
class CostForecast:
    """What will have been spent, at the present rate and within the limits of jobs."""

    day: float  #: dollars of today, at its end
    month: float  #: dollars of this month, at its end
    day_end: float  #: in seconds since 1970
    month_end: float  #: in seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class CostReport:
    """What all jobs cost."""

    now: float  #: in seconds since 1970
    total: float  #: dollars of all jobs that the store remembers
    today: float  #: dollars
    per_hour: float  #: dollars an hour for the current nodes
    price_known: bool  #: false: some node's price is unknown, so all dollars are too low
    jobs: tuple[JobCost, ...]  #: the dearest first
    days: tuple[DayCost, ...]  #: oldest first
    forecast: CostForecast
