"""What is remembered of slots, bids, attempts and zones, folded from the event log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tpuherd.model.slots_and_plan import Offer, Refusal
from tpuherd.model.sweep_trials import Sweep


class Verdict(StrEnum):
    """How an attempt ended, for the whole gang."""

    SUCCESS = "success"
    FAILURE = "failure"  #: the user's command failed: counts against the failures
    PREEMPTED = "preempted"
    NODE_FAULT = "node fault"  #: host lost, reboot, chips that don't come up
    STOPPED = "stopped"  #: by us, on purpose
    STALLED = "stalled"
    LOST = "lost"  #: for an unknown reason; counts as a node fault


class GiveUpCode(StrEnum):
    """Why a slot is not tried again: `code` of its event."""

    FAILURES = "failures"
    STALLS = "stalls"
    PREEMPTIONS = "preemptions"
    TIMEOUT = "timeout"
    LIFETIME = "lifetime"
    COST = "cost"
    UNFIT = "unfit"  #: no other try can help
    IDLE = "idle"
    OFFERS = "offers"  #: no node can be requested
    TRIALS = "trials"  #: none of its sweep has succeeded


SILENT = "silent"  #: `code` of bid.unhealthy and bid.healthy: of its hosts, not the cloud's word
FULL = "full"  #: `code` of a failed fetch: it would have filled the disk of the engine's machine


@dataclass(frozen=True, kw_only=True, slots=True)
class BidRecord:
    """One request for a node, as recorded."""

    name: str
    slot: str
    generation: int
    offer: Offer
    node_digest: str
    nodes: int
    asked_at: float  #: the first time
    sent_at: float = 0.0  #: the latest time
    sends: int = 1  #: number of times it was sent
    answered_at: float | None = None  #: when the cloud accepted it
    granted_at: float | None = None  #: its nodes are being created or exist
    ready_at: float | None = None
    unhealthy_at: float | None = None
    unhealthy_state: str = ""  #: the cloud's term for it: UNHEALTHY_TPU
    silent_at: float | None = None  #: when it was recorded that some host does not answer
    notice_at: float | None = None  #: the first preemption notice
    missed_at: float | None = None  #: since then the cloud's lists have omitted it
    lost_at: float | None = None
    lost_how: str = ""  #: preempted, terminated, vanished, …
    nodes_deleted_at: float | None = (
        None  #: withdrawn and its nodes are deleted: only its request is left
    )
    withdrawn_at: float | None = None  #: the latest time it was sent
    withdrawals: int = 0  #: number of times it was sent
    withdrawn_why: str = ""
    refusal: Refusal | None = None
    sentence: str = ""
    prepared: str = ""  #: code digest that all hosts are prepared for
    prepared_on: tuple[str, ...] = ()  #: incarnations and boots of the hosts it was prepared on
    prepared_at: float | None = None
    unprepared: int = 0  #: failed preparations in a row
    missing_inputs: int = 0  #: preparations in a row that lacked something only the user can give
    faults: int = 0  #: attempts in a row whose chips failed to initialize
    node_failures: int = 0  #: attempts in a row that the node ended otherwise
    halts: int = 0  #: how often an attempt that had ended was found running there, in a row
    idle_at: float | None = None  #: since its user was warned that nothing runs on it
    adopted: bool = False  #: this store did not request it: what runs there is found out first
    collected: bool = False  #: outputs and logs were fetched
    uncollected: int = 0  #: failed fetches in a row
    uncollected_at: float = 0.0
    full_at: float | None = None  #: the first fetch that would have filled our disk


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRecord:
    """One gang launch, as recorded."""

    id: str  #: gpt-0-a3-7kq
    number: int
    bid: str
    code_digest: str
    launched_at: float  #: the latest time it was sent
    launches: int = 1  #: number of times it was sent
    boots: tuple[str, ...] = ()  #: of its hosts, at the launch
    unwanted: bool = False  #: the user stopped or removed its job: a resumed job starts a new one
    started_at: float | None = None  #: when every host had answered
    first_step_at: float | None = None
    stopping_at: float | None = None
    stops: int = 0  #: number of times its stop was sent
    stopping_why: str = ""
    stopping_s: float = 0.0  #: the grace
    stalled: bool = False  #: it is stopped because it made no progress
    node_fault: bool = False  #: it is stopped because its node is unhealthy or silent
    last_at: float | None = None  #: its last sign of life before the stop
    ended_at: float | None = None
    verdict: Verdict | None = None
    host: str = ""  #: the first that failed
    exit: int | None = None
    lines: tuple[str, ...] = ()
    finding: str = ""  #: the rule that explains its end; see diagnosis
    saved: int | None = None  #: the latest durable checkpoint it reported
    saved_at: float | None = None  #: when that was recorded
    sure: bool = True  #: every host reported its end, or was known to be gone
    unfit: bool = False  #: a retry cannot help
    trial: int | None = None  #: the trial it works on, in a sweep
    saves_booked: int = 0  #: checkpoints whose way to another region is booked


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotHistory:
    """What is remembered of one slot."""

    generation: int = 0  #: the highest ever used
    gone: tuple[int, ...] = ()  #: the latest generations that were withdrawn and deleted
    bids: Mapping[str, BidRecord] = field(
        default_factory=dict
    )  #: requested and not known to be deleted
    attempt: AttemptRecord | None = None  #: the latest
    attempts: int = 0
    failures: int = 0  #: since the last progress
    preemptions: int = 0
    stalls: int = 0
    faults: int = 0  #: attempts in a row whose chips failed to initialize, on any node
    saved: int | None = None  #: the furthest durable checkpoint of any attempt
    first_launch_at: float | None = None
    done_at: float | None = None
    gave_up_at: float | None = None
    gave_up_why: str = ""
    spent: float = 0.0  #: dollars for bids that have ended, and for moved data
    moved: float = 0.0  #: dollars for checkpoints that went to other regions and back
    save_bytes: int = 0  #: size of its last checkpoint, as reported
    searching_at: float | None = None  #: the first request since the last grant
    failed_at: float | None = None  #: the latest failure of setup or command
    failed_why: str = ""
    unpreparable: bool = False  #: only a change of the job can make its setup succeed
    halted_at: float | None = None  #: an older attempt was found running and told to stop
    unfit: Mapping[str, str] = field(
        default_factory=dict
    )  #: offers that were refused for good, and why
    freed: Mapping[str, float] = field(default_factory=dict)
    #: when its own nodes last released quota, by zone, type and tier
    dropped: bool = False  #: the user removed its job
    trial: int | None = None  #: the trial it works on, in a sweep
    total: int | None = None  #: steps of its run, as its script last reported
    step_s: float | None = None  #: how long one takes, the same
    ran_s: float = 0.0  #: how long its ended attempts ran
    start_s: float | None = None  #: from READY to the first step, without waiting: the latest
    deadline_mode: str = ""  #: what its deadline demanded last; "": nothing yet


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneStats:
    """What is known of one type and tier in one zone."""

    refusals: int = 0  #: stock-outs, and requests given up, in a row
    refused_at: float = 0.0
    refusal: Refusal | None = None
    sentence: str = ""
    hint: str = ""  #: what to do about it, if the cloud's answer says so
    pause_s: float = 0.0  #: until the next try, by AIMD
    grants: int = 0
    waits_s: tuple[float, ...] = ()  #: the latest times from request to READY
    lives_s: tuple[float, ...] = ()  #: the latest times from READY to lost


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """All that is remembered, folded from the event log."""

    slots: Mapping[str, SlotHistory] = field(default_factory=dict)
    zone_stats: Mapping[tuple[str, str, str], ZoneStats] = field(default_factory=dict)
    #: by (zone, type, tier)
    asks: tuple[float, ...] = ()  #: when creates were sent in the last minute
    bad_nodes: Mapping[str, float] = field(
        default_factory=dict
    )  #: quarantined nodes, and since when
    started_at: float = 0.0  #: the engine's latest start
    frozen_at: float | None = None  #: since when deletions are paused
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)  #: by job


def has_running_attempt(slot_history: SlotHistory, bid: str | None = None) -> bool:
    """Whether an attempt (on this bid) is not known to have ended."""
    attempt = slot_history.attempt
    return attempt is not None and attempt.ended_at is None and bid in {None, attempt.bid}


UNFIT = 78  #: the exit status of a `Run` that cannot run like this: retries do not help


def billed_since(bid: BidRecord) -> float | None:
    """When its nodes began to cost: at READY; until then each that may be used counts, too."""
    return bid.ready_at or (bid.granted_at if bid.withdrawn_at is None else None)


def bid_cost(bid: BidRecord, now: float) -> float:
    """Dollars so far, if the price is known."""
    since = billed_since(bid)
    if since is None or bid.offer.price is None:
        return 0.0
    until = bid.lost_at or bid.nodes_deleted_at or now
    return max(0.0, until - since) / 3600 * bid.offer.price
