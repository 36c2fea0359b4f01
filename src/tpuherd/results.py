"""What the Python API answers: one frozen dataclass for each kind of answer.

Their fields are those of the same command's `--json` (docs/reference/json.md).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def read_result(content: Any, kind: type[T]) -> T:
    """What a command tells programs, as a value of this type."""
    return msgspec.json.decode(json.dumps(content, default=str), type=kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """What `run`, `up`, `change` and `scale` did."""

    job: str
    did: str  #: submitted, changed, unchanged, resumed, or restarted: it had ended and runs again
    revision: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSummary:
    """A job in one row."""

    job: str
    goal: str  #: run, idle, stopped or removed
    phase: str  #: what its slots do, in words
    phases: Mapping[str, int]  #: how many slots do each
    slots: int
    slices: int  #: nodes that work together in each slot
    ready: int  #: slots with a node that is ready
    type: tuple[str, ...]  #: accelerator types that are held
    zones: tuple[str, ...]
    attempt: int  #: the greatest number of an attempt; 0: none yet
    age_s: float
    cost: float  #: dollars so far
    per_hour: float  #: dollars an hour now
    price_known: bool  #: False: the price of some node is not known, so both are too low
    goodput: float | None  #: share of the wanted time in which work got on


@dataclass(frozen=True, kw_only=True, slots=True)
class Bid:
    """A request for a node, or the node."""

    bid: str
    zone: str
    type: str
    tier: str
    stage: str
    duration_s: float
    per_hour: float | None
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One start of a job's command on all hosts of a node."""

    number: int
    attempt: str
    bid: str
    zone: str
    type: str
    launched_at: float  #: in seconds since 1970
    duration_s: float
    verdict: str | None  #: success, failure, preempted, …; None: it runs
    why: str
    resumed: int | None  #: the step of the checkpoint that it went on from
    startup: Mapping[str, float]  #: what its start took, where it told: seconds by part
    step: int | None
    first_failing: str
    exit: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """What a loss cost."""

    at: float
    finished: bool
    verdict: str
    why: str
    attempt: int
    from_zone: str
    to_zone: str | None
    seconds: float
    parts: Mapping[str, float]
    startup: Mapping[str, float]  #: of `start`, seconds by part, where the command told
    steps_lost: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotStatus:
    """One of a job's places."""

    slot: str
    phase: str
    why: str  #: what it does or waits for
    zone: str
    attempt: int
    step: int | None
    saved: int | None  #: the step of the latest durable checkpoint
    goodput: float | None
    cost: float
    per_hour: float
    price_known: bool
    steps_lost: int
    wanted_s: float
    seconds: Mapping[str, float]  #: by state
    bids: tuple[Bid, ...]
    attempts: tuple[Attempt, ...]
    recoveries: tuple[Recovery, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Something that stands in the way of all jobs at once."""

    source: str  #: the cloud, the store of jobs, the engine, or your login
    message: str
    hint: str
    since: float
    at: float
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus(JobSummary):
    """All of a job."""

    submitted_at: float | None  #: seconds since 1970
    who: str
    document: Mapping[str, Any]  #: its fields
    engine: bool  #: whether an engine runs
    problems: tuple[Problem, ...]
    slot_details: tuple[SlotStatus, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened."""

    seq: int  #: its number in the log; numbers only rise
    at: float  #: in seconds since 1970
    kind: str  #: docs/reference/events.md
    job: str
    slot: str
    why: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """What each slot of a job does or waits for."""

    slots: Mapping[str, str]
    engine: bool
    recent: tuple[Event, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneCapacity:
    """What was learnt of one type and tier in one zone."""

    zone: str
    type: str
    tier: str
    requested: int
    refused: int
    granted: int
    wait_s: float | None  #: median, from asking until it is ready
    life_s: float | None  #: median, until a loss
    refusal: str
    message: str
    refused_s_ago: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStep:
    """One request that would be made or withdrawn now."""

    do: str  #: ask or withdraw
    bid: str
    slot: str
    zone: str
    type: str
    tier: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What would be done in the cloud now."""

    states: Mapping[str, str]  #: the sentence of each slot
    frozen: str  #: why nothing is deleted now; else empty
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Orphan:
    """A request or node that herd made and no job uses."""

    name: str
    zone: str
    state: str
    nodes: int
    per_hour: float | None
    command: str  #: what deletes it


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """What `gc` found."""

    orphans: tuple[Orphan, ...]
    withdrawn: tuple[str, ...]  #: what is being deleted
    unanswered_zones: tuple[str, ...]  #: zones that did not answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Adoption:
    """What `adopt` took over."""

    jobs: tuple[str, ...]
    adopted: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One trial of a sweep."""

    trial: int
    phase: str  #: running, waiting, complete, pruned, failed, stopped
    value: float | None
    step: int | None
    params: Mapping[str, Any]
    slot: str
    run_id: str
    attempts: int
    preemptions: int
    seconds: float
    why: str
    nan: bool  #: its metric is NaN or infinite by now
    points: tuple[tuple[float, ...], ...]  #: step, value


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepStatus:
    """All of a sweep."""

    sweep: str
    method: str
    metric: str
    goal: str
    planned: int
    phases: Mapping[str, int]
    best: int | None  #: number of the best trial that is complete
    trials: tuple[Trial, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """How a command ended on one host, and what it wrote there."""

    host: str
    status: int
    stdout: str
    stderr: str
    why: str = ""  #: a sentence, where the status does not say it


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """How a command ended on all hosts."""

    id: str  #: `herd logs --attempt ID` shows it
    status: int  #: the greatest of all hosts'; 255: one was not reached; 124: it took too long
    hosts: tuple[HostResult, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """A line that a host wrote."""

    host: str
    at: float  #: in seconds since 1970
    port: str  #: stdout, stderr or agent
    text: str
    attempt: str  #: the id of the attempt or command
