"""The results of the Python API: one frozen dataclass for each kind.

Their fields are those of the matching command's `--json` (docs/reference/json.md).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def read_result(content: Any, kind: type[T]) -> T:
    """Convert a command's JSON output to this type."""
    return msgspec.json.decode(json.dumps(content, default=str), type=kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The outcome of `run`, `up`, `change` or `scale`."""

    job: str
    did: str  #: submitted, changed, unchanged, resumed, or restarted: it had ended and runs again
    revision: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSummary:
    """A job as one row."""

    job: str
    goal: str  #: run, idle, stopped or removed
    phase: str  #: what its slots are doing, in words
    phases: Mapping[str, int]  #: number of slots in each phase
    slots: int
    slices: int  #: nodes that work together in each slot
    ready: int  #: slots with a node that is ready
    type: tuple[str, ...]  #: accelerator types of its nodes
    zones: tuple[str, ...]
    attempt: int  #: the greatest attempt number; 0: none yet
    age_s: float
    cost: float  #: dollars so far
    per_hour: float  #: dollars an hour now
    price_known: bool  #: False: some node's price is unknown, so cost and per_hour are too low
    goodput: float | None  #: share of the wanted time that was spent on progress


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
    verdict: str | None  #: success, failure, preempted, …; None: still running
    why: str
    resumed: int | None  #: the step of the checkpoint that it resumed from
    startup: Mapping[str, float]  #: seconds by part of its start, if reported
    step: int | None
    first_failing: str
    exit: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """What a lost node cost."""

    at: float
    finished: bool
    verdict: str
    why: str
    attempt: int
    from_zone: str
    to_zone: str | None
    seconds: float
    parts: Mapping[str, float]
    startup: Mapping[str, float]  #: seconds by part of `start`, if reported
    steps_lost: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotStatus:
    """One slot of a job."""

    slot: str
    phase: str
    why: str  #: what it is doing or waiting for
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
    """A problem that affects all jobs."""

    source: str  #: the cloud, the store of jobs, the engine, or your login
    message: str
    hint: str
    since: float
    at: float
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus(JobSummary):
    """A job in detail."""

    submitted_at: float | None  #: seconds since 1970
    who: str
    document: Mapping[str, Any]  #: the fields of the job
    engine: bool  #: whether an engine runs
    problems: tuple[Problem, ...]
    slot_details: tuple[SlotStatus, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    seq: int  #: its number in the log, always increasing
    at: float  #: in seconds since 1970
    kind: str  #: docs/reference/events.md
    job: str
    slot: str
    why: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """What each slot of a job is doing or waiting for."""

    slots: Mapping[str, str]
    engine: bool
    recent: tuple[Event, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneCapacity:
    """What herd has learned about one type and tier in one zone."""

    zone: str
    type: str
    tier: str
    requested: int
    refused: int
    granted: int
    wait_s: float | None  #: median from request to ready
    life_s: float | None  #: median until a node was lost
    refusal: str
    message: str
    refused_s_ago: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStep:
    """A request that would be sent or withdrawn now."""

    do: str  #: ask or withdraw
    bid: str
    slot: str
    zone: str
    type: str
    tier: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the engine would do in the cloud now."""

    states: Mapping[str, str]  #: the message of each slot
    frozen: str  #: why deletions are paused, or empty
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Orphan:
    """A request or node that herd created but no job uses."""

    name: str
    zone: str
    state: str
    nodes: int
    per_hour: float | None
    command: str  #: the command that deletes it


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """The outcome of `gc`."""

    orphans: tuple[Orphan, ...]
    withdrawn: tuple[str, ...]  #: what is being deleted
    unanswered_zones: tuple[str, ...]  #: zones that did not answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Adoption:
    """The outcome of `adopt`."""

    jobs: tuple[str, ...]
    adopted: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
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
    nan: bool  #: its metric has become NaN or infinite
    points: tuple[tuple[float, ...], ...]  #: step, value


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepStatus:
    """A sweep in detail."""

    sweep: str
    method: str
    metric: str
    goal: str
    planned: int
    phases: Mapping[str, int]
    best: int | None  #: number of the best completed trial
    trials: tuple[Trial, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """How a command ended on one host, and its output there."""

    host: str
    status: int
    stdout: str
    stderr: str
    why: str = ""  #: a sentence, if the status is not enough


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """How a command ended on all hosts."""

    id: str  #: `herd logs --attempt ID` shows it
    status: int  #: the greatest of all hosts; 255: one was unreachable; 124: timed out
    hosts: tuple[HostResult, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One line of a host's log."""

    host: str
    at: float  #: in seconds since 1970
    port: str  #: stdout, stderr or agent
    text: str
    attempt: str  #: the id of the attempt or command
