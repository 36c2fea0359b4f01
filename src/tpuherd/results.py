"""The results of the Python API: one frozen dataclass for each kind.

Their fields are those of the matching command's `--json`: docs/reference/json.md is made from their
types and comments, where None is null.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")


def read_result(content: Any, kind: type[T]) -> T:
    """Convert a command's JSON output to this type."""
    return msgspec.json.decode(json.dumps(content, default=str), type=kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The outcome of `run`, `up`, `change` or `scale`."""

    job: str  #: its name
    #: the outcome
    did: Literal["submitted", "changed", "unchanged", "restarted", "resumed"]
    revision: int  #: counts the changes of the job


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSummary:
    """A job as one row."""

    job: str  #: its name
    user: str  #: whose job it is; empty if nobody has said so
    goal: Literal["run", "idle", "stopped", "removed"]  #: what the job should do
    phase: str  #: what its slots do
    phases: Mapping[str, int]  #: number of slots by phase
    slots: int  #: number of slots
    slices: int  #: nodes that work together in each slot
    idle: int  #: slots on whose ready node nothing has run for long
    ready: int  #: slots whose node is ready
    type: tuple[str, ...]  #: accelerator types of the current nodes
    zones: tuple[str, ...]  #: zones of the current nodes
    attempt: int  #: the highest attempt number; 0: none yet
    age_s: float  #: seconds since it was submitted
    cost: float  #: dollars so far, by the catalogue's prices
    per_hour: float  #: dollars an hour for the current nodes
    price_known: bool  #: false: some node's price is unknown, so both are too low
    goodput: float | None  #: productive share of the time it should run, as far as it is known
    goodput_why: str  #: why that is not known, or for how long; empty: nothing ran, or all is known


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSummary:
    """A TPU of the project, whatever made it."""

    node: str  #: its name
    zone: str
    type: str
    tier: str  #: spot, preemptible, on-demand or reserved
    state: str  #: as the cloud calls it
    created: float  #: in seconds since 1970
    address: str  #: of its first host; empty: none yet
    job: str  #: whose node it is; empty: no job of yours
    owner: str  #: id of another herd's user, if that made it
    per_hour: float | None  #: dollars; null: not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Bid:
    """A request for a node, or the node."""

    bid: str  #: name of the request and its node
    zone: str
    type: str
    tier: str  #: spot, preemptible, on-demand or reserved
    #: requested, being created, ready, unhealthy, notice received, being deleted, refused: …, or
    #: how it was lost: preempted, …
    stage: str
    duration_s: float  #: seconds in that stage
    per_hour: float | None  #: dollars an hour now; null: not billed, or unknown
    message: str  #: why it is being deleted, or the cloud's message


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
    """The known failure that explains how an attempt ended."""

    id: str  #: of the rule
    cause: str  #: in a sentence
    fix: str  #: how to fix it


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One start of a job's command on all hosts of a node."""

    number: int  #: from 1
    attempt: str  #: its id
    bid: str  #: the node it ran on
    zone: str
    type: str
    launched_at: float  #: seconds since 1970
    duration_s: float  #: seconds from launch to end, or to now
    #: success, failure, preempted, node fault, stopped, stalled, lost; null: it is running
    verdict: str | None
    why: str  #: how it ended
    resumed: int | None  #: step of the checkpoint that it resumed from
    startup: Mapping[str, float]  #: seconds of its startup by part, if reported
    step: int | None  #: the latest step that it reported
    first_failing: str  #: the host that failed first
    exit: int | None  #: its exit status
    lines: tuple[str, ...]  #: its last lines
    finding: KnownFailure | None  #: what explains its end; null: no rule does


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """What a lost node cost."""

    at: float  #: last sign of life of the lost attempt, in seconds since 1970
    finished: bool  #: false: still recovering
    verdict: str  #: of the lost attempt
    why: str  #: in a sentence
    attempt: int  #: its number
    from_zone: str
    to_zone: str | None
    seconds: float  #: until the next attempt's first step
    parts: Mapping[str, float]  #: how these seconds were spent
    startup: Mapping[str, float]  #: seconds of `start` by part, if reported
    steps_lost: int | None  #: steps that must be repeated


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotStatus:
    """One slot of a job."""

    slot: str  #: its name
    phase: str  #: what it does
    why: str  #: what it does or is waiting for, in the engine's words
    zone: str  #: of its node
    attempt: int  #: the latest; 0: none yet
    step: int | None  #: the latest known step
    saved: int | None  #: the latest durable checkpoint
    best_step: int | None  #: the best checkpoint by the run's metric, if it keeps one
    milestone: int | None  #: the latest checkpoint that is never removed
    goodput: float | None  #: productive share of the time it should run, as far as it is known
    goodput_why: str  #: why that is not known, or for how long; empty: nothing ran, or all is known
    cost: float  #: dollars so far, by the catalogue's prices
    per_hour: float  #: dollars an hour for the current nodes
    price_known: bool  #: false: some node's price is unknown, so both are too low
    steps_lost: int  #: lost steps in total
    wanted_s: float  #: seconds during which it should run
    seconds: Mapping[str, float]  #: by state; they add up to the time since it was submitted
    bids: tuple[Bid, ...]  #: current requests and nodes
    attempts: tuple[Attempt, ...]  #: all attempts, oldest first
    recoveries: tuple[Recovery, ...]  #: all losses, oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A problem that affects all jobs."""

    #: the cloud, the job store, its backup, the engine, your login, or messages to you
    source: Literal["cloud", "store", "backup", "engine", "login", "notify"]
    message: str  #: the latest message
    hint: str  #: what to do about it
    since: float  #: when it began, in seconds since 1970
    at: float  #: when it last occurred
    count: int  #: how often in a row


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus(JobSummary):
    """A job in detail."""

    submitted_at: float | None  #: when it was submitted, in seconds since 1970
    who: str  #: the user who submitted it
    document: Mapping[str, Any]  #: the job as it was submitted
    engine: bool  #: whether an engine runs
    problems: tuple[Problem, ...]  #: problems that affect all jobs
    slot_details: tuple[SlotStatus, ...]  #: its slots


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    seq: int  #: its number in the log; numbers only rise
    at: float  #: seconds since 1970
    kind: str  #: what happened
    job: str  #: its job; empty: none
    slot: str  #: its slot; empty: none
    why: str = ""  #: the reason, if there is one
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class WithheldReceiver:
    """Someone who gets no messages about a job, since another account has submitted it."""

    receiver: str  #: its name, without secrets
    code: Literal["command", "others"]  #: a command, or any other
    why: str  #: what to do about it


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """What each slot of a job is doing or waiting for."""

    slots: Mapping[str, str]  #: what each slot does or is waiting for
    #: what explains the failure of slots whose latest attempt or setup has failed, by slot
    findings: Mapping[str, KnownFailure]
    withheld: tuple[WithheldReceiver, ...]  #: the job's receivers that the engine does not use
    engine: bool  #: whether an engine runs; if not, the sentences may be out of date
    problems: tuple[Problem, ...]  #: problems that affect all jobs


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneCapacity:
    """What herd has learned about one type and tier in one zone."""

    zone: str
    type: str
    tier: str
    requested: int  #: number of requests
    refused: int  #: of them
    granted: int  #: of them
    wait_s: float | None  #: median seconds from request to READY
    life_s: float | None  #: median seconds from READY to a loss
    refusal: str  #: the latest: stockout, rate, quota, reservation, permission, …
    message: str  #: the cloud's message
    refused_s_ago: float | None  #: how long ago that was


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeImage:
    """An image that a TPU type can boot."""

    version: str  #: `runtime` of a job
    ubuntu: str
    python: str  #: of the image itself
    default: bool  #: what a job gets that names none


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeZone:
    """A zone that has a TPU type."""

    zone: str
    on_demand: float | None  #: dollars an hour for a node; null: unknown
    spot: float | None  #: dollars an hour for a node; null: unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class TpuType:
    """A TPU type, as Google documents it."""

    type: str  #: `accelerator` of a job
    generation: str
    topology: str  #: of its chips
    chips: int
    cores: int  #: TensorCores, of which the numbers in most names are made
    hbm_gib: int  #: of all chips
    bf16_tflops: int  #: peak of all chips
    hosts: int  #: worker VMs of a node
    chips_per_host: int
    machine: str  #: machine type of a host; empty: unknown
    host_cpus: int | None  #: vCPUs of a host; null: unknown
    host_ram_gb: int | None  #: of a host; null: unknown
    multislice: bool  #: several nodes can run one program: `slices` of a job
    images: tuple[TypeImage, ...]  #: the default first
    zones: tuple[TypeZone, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStep:
    """A request that would be sent or withdrawn now."""

    do: Literal["ask", "withdraw"]
    bid: str  #: the request and the node
    slot: str  #: whose
    zone: str
    type: str  #: of an ask
    tier: str  #: of an ask
    why: str  #: the reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the engine would do in the cloud now."""

    states: Mapping[str, str]  #: what each slot does or is waiting for
    frozen: str  #: why deletions are paused; else empty
    steps: tuple[PlanStep, ...]  #: what the engine would do in the cloud now


@dataclass(frozen=True, kw_only=True, slots=True)
class Orphan:
    """A request or node that herd created but no job uses."""

    name: str  #: of the request and the node
    zone: str
    state: str  #: in the cloud's terms
    nodes: int  #: 0: only a request
    per_hour: float | None  #: dollars an hour at list prices; null: unknown
    command: str  #: the command that deletes it


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """The outcome of `gc`."""

    orphans: tuple[Orphan, ...]  #: resources that herd created and no job uses
    withdrawn: tuple[str, ...]  #: what is being deleted
    unanswered_zones: tuple[str, ...]  #: zones that did not answer: what is there is unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Adoption:
    """The outcome of `adopt`."""

    jobs: tuple[str, ...]  #: their jobs
    adopted: tuple[str, ...]  #: requests and nodes that were taken over
    unknown: tuple[str, ...]  #: resources without a job in their metadata


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    trial: int  #: its number, from 0
    phase: str  #: running, waiting, complete, pruned, failed, stopped
    value: float | None  #: latest value of the metric; null: none, or not a number
    step: int | None  #: step of that value
    params: Mapping[str, Any]  #: parameter values by name
    slot: str  #: its current or last slot
    run_id: str  #: its RUN_ID, in all attempts
    attempts: int  #: number of starts
    preemptions: int  #: number of preemptions after which it resumed
    seconds: float  #: from creation to its end, or to now
    why: str  #: how it ended
    nan: bool  #: its metric is NaN or infinite
    #: reported step and value of the metric; if there are very many, a sample and the last
    points: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepStatus:
    """A sweep in detail."""

    sweep: str  #: its name
    method: str  #: grid, random or bayes; empty: the job no longer exists
    metric: str  #: the metric that judges trials
    goal: str  #: minimize, maximize
    planned: int  #: total number of trials
    phases: Mapping[str, int]  #: number of trials by phase
    best: int | None  #: number of the best complete trial
    trials: tuple[Trial, ...]  #: its trials, by number


@dataclass(frozen=True, kw_only=True, slots=True)
class MapItem:
    """One item of a map."""

    item: int  #: its number, from 0
    text: str  #: the item
    phase: Literal["waiting", "running", "complete", "failed"]
    exit: int | None  #: exit status; null: it has not ended
    attempts: int  #: number of starts
    attempt: str  #: its latest attempt: `herd logs --attempt` shows the output
    slot: str  #: its current or last slot
    seconds: float | None  #: from its start to its end, or to now
    lines: tuple[str, ...]  #: the last lines of one that failed
    why: str  #: how it ended


@dataclass(frozen=True, kw_only=True, slots=True)
class MapResult:
    """A map with all its items."""

    map: str  #: the name of its job
    total: int  #: number of items
    phases: Mapping[str, int]  #: number of items by phase
    exit: int | None  #: the greatest exit status of its items; null: some are left
    items: tuple[MapItem, ...]  #: its items, by number; with --failed, failed ones


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
