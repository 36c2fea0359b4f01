"""The planner's nouns: what is desired, and what to do about it, each step with its reason.

desired   DesiredSlots: slots with their goals; copies and sweeps are expanded before
observed  ObservedState: the cloud's state of each bid, the agents' state of each host
history   History: folded from the event log, only what cannot be observed again
plan      EnginePlan: steps, each with its reason, and when to plan again
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from tpuherd.model.lab_shares import LabShares

# ---- desired -------------------------------------------------------------------------------------


class Goal(StrEnum):
    """What the user wants of one slot."""

    RUN = "run"  #: a node, and the command on it until it has succeeded
    IDLE = "idle"  #: a node, prepared, and no command
    GONE = "gone"  #: nothing, and nothing left over


class RequestKind(StrEnum):
    """How a node is requested."""

    QUEUED = "queued"  #: a queued resource
    DIRECT = "direct"  #: nodes.create


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One way to fill a slot: a type in a zone at a tier."""

    zone: str
    type: str  #: v4-32
    runtime: str
    tier: str  #: spot, preemptible, on-demand, reserved
    kind: RequestKind = RequestKind.QUEUED
    rank: int = 0  #: 0 is liked best: the user's order of accelerators, then of tiers
    hosts: int = 1  #: of one node
    price: float | None = None  #: dollars an hour for all nodes of the slot; None: not known
    egress: float | None = 0.0  #: the same for data from other regions, as estimated
    per_gib: float | None = 0.0  #: dollars to move a GiB between its checkpoints and here


def offer_key(offer: Offer) -> tuple[str, str, str]:
    """Zone, type and tier: what quotas and statistics are kept by."""
    return offer.zone, offer.type, offer.tier


#: Tiers whose nodes may be taken away at any time.
CHEAP_TIERS = frozenset(("spot", "preemptible"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """Until when a slot is to be done."""

    at: float
    since: float  #: the job's submission
    work_s: float | None = None  #: on nodes that work without a break, as the user says


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How long and how often one slot may try, and what it may cost."""

    failures: int | None = 3  #: of the user's command without progress in between; None: no end
    preemptions: int | None = None
    stalls: int | None = 3
    stall_s: float = 600.0  #: no log and no step for this long, or 20 × the median step if longer
    first_step_s: float = 2700.0  #: the same before the first step: compiling takes long
    lifetime_s: float = inf  #: since the first launch
    timeout_s: float = inf  #: of one item of a map
    idle_s: float = inf  #: a node with goal IDLE and no command running on it
    cost: float = inf  #: dollars in all
    done_keep_s: float = 0.0  #: how long the node stays after success
    failed_keep_s: float = 0.0  #: how long it stays after the last failure
    patience_s: float = 600.0  #: without a grant until the next rank, or zone of a hedge, is tried
    grace_s: float = 30.0  #: between TERM and KILL
    notice_grace_s: float = 25.0  #: the same when the cloud gave notice


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One of a job's slots, as desired."""

    name: str  #: gpt-0
    job: str  #: gpt
    goal: Goal
    offers: tuple[Offer, ...]  #: all allowed ones; empty: `no_offer` says why
    node_digest: str  #: of all but the offer that needs a new node when changed
    code_digest: str  #: of all that needs a new attempt when changed: code, setup, command, env
    desired_since: float
    nodes: int = 1  #: a multislice run has several, granted together or not at all
    limits: Limits = field(default_factory=Limits)
    outputs: bool = False  #: there are paths to bring back before a node goes
    exact: bool = False  #: one bid at a time, for tools that insist on a node's name
    boots_ahead: bool = True  #: hosts are set up as soon as they answer, READY or not
    patient: bool = False  #: changed code waits for the next attempt
    no_offer: str = ""
    trials: bool = False  #: it works on what a sweep gives it, one trial after another
    items: bool = False  #: its trials are the items of a map
    deadline: Deadline | None = None
    user: str = ""  #: whose it is
    priority: int = 0  #: the highest goes first where a quota is shared
    held: str = ""  #: why it must leave offers to others now: see planner/fair_share.py
    shut: frozenset[tuple[str, str, str]] = frozenset()  #: those offers: zone, type, tier


@dataclass(frozen=True, kw_only=True, slots=True)
class DesiredSlots:
    """All slots, and what one project may do to its cloud."""

    slots: Mapping[str, Slot]
    owner: str  #: part of the names of our resources
    creates_per_min: int = 60
    hedge: int | None = None  #: maximum bids per slot; None: one in each zone
    shares: LabShares = field(default_factory=LabShares)
    adopted: frozenset[str] = frozenset()  #: further owners whose names count as ours


class Refusal(StrEnum):
    """Why the cloud refused."""

    STOCKOUT = "stockout"  #: no capacity there now: try again, later and later
    RATE = "rate"  #: too many requests: wait
    QUOTA = "quota"  #: over the project's quota: wait, and say so
    RESERVATION = "reservation"  #: the reservation is used up or not there: wait, tell
    PERMISSION = "permission"  #: fatal for this zone, with what to do
    CONFIGURATION = "configuration"  #: fatal for this offer, with what to do
    TAKEN = "taken"  #: the name is in use by something else: take the next number
    NAME_IN_USE = "name_in_use"  #: another node has the exact name: wait until it is deleted
    BROKEN = "broken"  #: the cloud failed at it: try again


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEvent:
    """One line of the log: a constant kind and its facts."""

    at: float
    kind: str  #: a key of EVENT_KINDS: "bid.requested", "attempt.ended", …
    job: str = ""
    slot: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  #: JSON; "why" is the user's sentence


# ---- plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Ask the cloud for a bid's nodes."""

    bid: str
    slot: str
    generation: int
    offer: Offer
    nodes: int
    node_digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdraw:
    """Take a bid back: its queued resource and its nodes."""

    bid: str
    slot: str
    zone: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepare:
    """Ship the code to all hosts of a bid, and set them up."""

    bid: str
    slot: str
    code_digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Start the command on all hosts of a bid, or on none."""

    bid: str
    slot: str
    attempt: str
    number: int
    resume: bool  #: an earlier attempt has run
    code_digest: str
    boots: tuple[str, ...] = ()  #: of its hosts, in the order of nodes and workers
    trial: int | None = None  #: of a sweep


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Stop the attempt on all hosts of a bid: TERM, grace, KILL, chips free."""

    bid: str
    slot: str
    attempt: str
    grace_s: float
    stacks: bool = False  #: save the stacks of its processes before
    last_at: float | None = None  #: its last sign of life until now
    node_fault: bool = False  #: its node is the cause, not the user


@dataclass(frozen=True, kw_only=True, slots=True)
class Collect:
    """Bring outputs and the rest of the logs back."""

    bid: str
    slot: str
    attempt: str
    within_s: float | None = None  #: the node goes away: what has not come by then is cut off


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordEvent:
    """Only a line in the log: a verdict, a grant, a loss, an end."""

    event: HistoryEvent


Action = Ask | Withdraw | Prepare | Launch | Stop | Collect | RecordEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """An action and the sentence that a person reads for it."""

    action: Action
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EnginePlan:
    """What to do now."""

    steps: tuple[PlannedStep, ...] = ()
    wake_at: float = inf  #: think again by then, even if nothing stirs
    survey_s: float = 60.0  #: look at the cloud this often until the next plan
    states: Mapping[str, str] = field(default_factory=dict)  #: a sentence a slot: `herd why`
    frozen: str = ""  #: why nothing is deleted now, if so
    rest: bool = False  #: every slot is done, has given up or is gone, and nothing is held
