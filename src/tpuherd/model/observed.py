"""What is observed: the cloud's state of each bid, and the agents' state of each host.

States are parsed at the edge into the enums here. An unknown state becomes UNKNOWN, which is shown
and never acted upon.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tpuherd.model.slots_and_plan import Refusal


class RequestState(StrEnum):
    """The state of a queued resource."""

    QUEUED = "queued"  #: CREATING, ACCEPTED, WAITING_FOR_RESOURCES
    GRANTED = "granted"  #: PROVISIONING
    ACTIVE = "active"
    ENDING = "ending"  #: SUSPENDING: it cannot be deleted now
    LOST = "lost"  #: SUSPENDED: its nodes are gone
    REFUSED = "refused"  #: FAILED
    LEAVING = "leaving"  #: DELETING
    UNKNOWN = "unknown"


class NodeState(StrEnum):
    """The state of a node."""

    MAKING = "making"  #: CREATING, STARTING, RESTARTING, REIMAGING
    READY = "ready"
    UNHEALTHY = "unhealthy"  #: REPAIRING, under maintenance, or READY and unhealthy
    LOST = "lost"  #: PREEMPTED, TERMINATED, STOPPED and its like
    STOPPING = "stopping"  #: as good as lost, but what runs there may still do so
    LEAVING = "leaving"  #: DELETING
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeObservation:
    """One node as the cloud shows it."""

    name: str
    word: NodeState
    state: str  #: the cloud's own state, for people
    incarnation: str
    hosts: int
    created: float = 0.0
    health: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BidObservation:
    """One bid as the cloud shows it: its queued resource, its nodes, or both."""

    bid: str
    zone: str
    request: RequestState | None = None  #: None: no queued resource has this name
    nodes: tuple[NodeObservation, ...] = ()
    state: str = ""  #: the cloud's own state of the request
    refusal: Refusal | None = None  #: if the request is REFUSED
    sentence: str = ""  #: the cloud's message
    card: Mapping[str, Any] = field(default_factory=dict)  #: what herd stored in its metadata
    other_request: str = ""  #: of an adopted node: the queued resource that created it


class RunState(StrEnum):
    """The state of an attempt on one host."""

    ABSENT = "absent"  #: unknown to the agent
    SETUP = "setup"
    RUNNING = "running"
    ENDING = "ending"  #: being stopped, chips not free yet
    ENDED = "ended"
    LOST = "lost"  #: its end was not recorded: a reboot, or everything was killed


class EndCode(StrEnum):
    """Why an attempt ended, as far as something depends on it."""

    CLEANED = "cleaned"  #: a user's `herd clean` has ended it
    UNBORN = "unborn"  #: the host could not begin it: the disk is full, and the like
    OUTSIDE = "outside"  #: a signal that herd did not send has ended it
    UNKNOWN = ""


class Outlook(StrEnum):
    """What becomes of a host by its notices; of several the last in this order counts."""

    STAYS = ""  #: none, or one that changes nothing
    OFF = "off"  #: it is powered off, without a reason
    RETURNS = "returns"  #: it reboots, now or because of maintenance
    GONE = "gone"  #: it is preempted


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRun:
    """An attempt on one host, as its agent reports it."""

    attempt: str
    word: RunState
    started: float | None = None
    ended: float | None = None
    exit: int | None = None
    signal: int | None = None
    termed: bool = False  #: TERM was sent to it, by us or because of a notice
    deadman: bool = False
    why: str = ""  #: for people
    code: EndCode = EndCode.UNKNOWN
    tail: tuple[str, ...] = ()  #: its last lines
    step: int | None = None  #: the latest it reported
    resumed: int | None = None  #: the step of the checkpoint that it resumed from, if reported
    restore_s: float | None = None  #: seconds spent reading that checkpoint
    startup: Mapping[str, float] = field(default_factory=dict)  #: seconds of its start, by part
    saved: int | None = None  #: the latest step that a durable checkpoint covers
    marks: Mapping[str, int] = field(default_factory=dict)  #: steps of the best and a milestone
    saving: Mapping[str, float] = field(default_factory=dict)
    #: how many checkpoints it wrote, how long it stood still for all, how long one takes
    complete: bool = False  #: the script reported that the run is complete
    stepped_at: float | None = None
    logged_at: float | None = None
    heard_at: float = 0.0  #: when its agent last said that it lives; 0: never
    step_s: float | None = None  #: median duration of a step
    total: int | None = None  #: steps of the whole run, as it reports
    drained: bool = False  #: all its log is in our store
    metrics: Mapping[str, float] = field(default_factory=dict)  #: other numbers it reported


@dataclass(frozen=True, kw_only=True, slots=True)
class HostStatus:
    """One host of a held bid, as last reported."""

    node: str
    worker: int
    incarnation: str
    reached: bool  #: a link is up
    heard_at: float  #: the last sign of life; 0: never
    boot: str = ""
    notice: str = ""  #: preempted, maintenance or shutdown
    notice_at: float | None = None
    outlook: Outlook = Outlook.STAYS
    works: tuple[HostRun, ...] = ()  #: those of the bid's slot
    trouble: str = ""  #: why it is unreachable, for people
    held: str = ""  #: who else uses the chips for which an attempt waits, for people
    used_at: float = 0.0  #: when a user's command last ran there; 0: not known
    pauses: tuple[tuple[float, float], ...] = ()  #: when its agent stood still: the end, seconds

    @property
    def name(self) -> str:
        """gpt-0-g1-7kq/w3"""
        return f"{self.node}/w{self.worker}"

    @property
    def is_leaving(self) -> bool:
        """Whether it shuts down; whether it comes back, the cloud says."""
        return self.outlook is Outlook.OFF or self.outlook is Outlook.RETURNS


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedState:
    observations: Mapping[str, BidObservation] = field(
        default_factory=dict
    )  #: by bid; all whose names contain an owner
    zones: frozenset[str] = frozenset()  #: those that answered this time, for nodes and requests
    surveyed_at: float = 0.0  #: when the survey behind `observations` began
    awake_at: float = 0.0  #: since when the engine has run without a pause
    hosts: Mapping[str, tuple[HostStatus, ...]] = field(default_factory=dict)  #: by bid
    calling: frozenset[str] = frozenset()  #: bids with a pending call
    working: frozenset[str] = frozenset()  #: slots being prepared, launched, stopped or collected
