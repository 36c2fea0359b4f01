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
    STOPPED = "stopped"  #: by us, as wished
    STALLED = "stalled"
    LOST = "lost"  #: nobody knows; runs again, counts as a node fault


@dataclass(frozen=True, kw_only=True, slots=True)
class BidRecord:
    """One request for a node, as recorded: what the cloud can't be asked again."""

    name: str
    slot: str
    generation: int
    offer: Offer
    node_digest: str
    nodes: int
    asked_at: float  #: the first time
    sent_at: float = 0.0  #: the latest time
    sends: int = 1  #: so often it was sent
    answered_at: float | None = None  #: the cloud took it
    granted_at: float | None = None  #: nodes being made or there
    ready_at: float | None = None
    sick_at: float | None = None
    sick_how: str = ""  #: the cloud's word for it: UNHEALTHY_TPU
    noticed_at: float | None = None  #: the first deadly notice
    missed_at: float | None = None  #: the cloud's lists have not shown it since
    lost_at: float | None = None
    lost_how: str = ""  #: preempted, terminated, vanished, …
    freed_at: float | None = None  #: withdrawn, and its nodes are gone: only its request is left
    withdrawn_at: float | None = None  #: the latest time it was sent
    withdrawals: int = 0  #: so often it was sent
    withdrawn_why: str = ""
    refusal: Refusal | None = None
    sentence: str = ""
    prepared: str = ""  #: code digest that all hosts are prepared for
    prepared_on: tuple[str, ...] = ()  #: incarnations and boots of the hosts it was prepared on
    prepared_at: float | None = None
    unprepared: int = 0  #: so often in a row that went wrong
    missing_inputs: int = 0  #: so often in a row what only the user can give was missing
    faults: int = 0  #: chips that did not come up, in a row
    node_failures: int = 0  #: attempts that the node ended otherwise, in a row
    collected: bool = False  #: outputs and logs are here
    uncollected: int = 0  #: so often that went wrong
    uncollected_at: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRecord:
    """One gang launch, as recorded."""

    id: str  #: gpt-0-a3-7kq
    number: int
    bid: str
    code_digest: str
    launched_at: float  #: the latest time it was sent
    launches: int = 1  #: so often it was sent
    boots: tuple[str, ...] = ()  #: of its hosts, at the launch
    started_at: float | None = None  #: every host answered
    first_step_at: float | None = None
    stopping_at: float | None = None
    stopping_why: str = ""
    stopping_s: float = 0.0  #: the grace
    stalled: bool = False  #: it is stopped because nothing went on
    node_fault: bool = False  #: it is stopped because its node is unhealthy or silent
    last_at: float | None = None  #: its last sign of life before it was stopped
    ended_at: float | None = None
    verdict: Verdict | None = None
    host: str = ""  #: the first that failed
    exit: int | None = None
    lines: tuple[str, ...] = ()
    saved: int | None = None  #: the latest durable checkpoint it told of
    saved_at: float | None = None  #: when that was noted
    sure: bool = True  #: every host told of its end, or was known to be gone
    unfit: bool = False  #: no other try of the same can help
    trial: int | None = None  #: of a sweep: the one that it works on


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotHistory:
    """What one slot has lived through."""

    generation: int = 0  #: the highest ever used
    gone: tuple[int, ...] = ()  #: generations withdrawn and not there any more; the latest ones
    bids: Mapping[str, BidRecord] = field(default_factory=dict)  #: asked and not known to be gone
    attempt: AttemptRecord | None = None  #: the latest
    attempts: int = 0
    failures: int = 0  #: since the last progress
    preemptions: int = 0
    stalls: int = 0
    faults: int = 0  #: attempts in a row whose chips did not come up, on any node
    saved: int | None = None  #: the furthest durable checkpoint of any attempt
    first_launch_at: float | None = None
    done_at: float | None = None
    gave_up_at: float | None = None
    gave_up_why: str = ""
    spent: float = 0.0  #: dollars, of bids that are over
    searching_at: float | None = None  #: the first ask since the last grant
    failed_at: float | None = None  #: the latest failure, of setup or command
    failed_why: str = ""
    halted_at: float | None = None  #: an older attempt was found alive, and told to stop
    unfit: Mapping[str, str] = field(default_factory=dict)  #: offers that can't be, and why
    freed: Mapping[str, float] = field(default_factory=dict)
    #: when its own nodes last gave quota back, by zone, type and tier
    dropped: bool = False  #: the user took the wish for it back
    trial: int | None = None  #: of a sweep: what it was given to work on


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneStats:
    """What was learnt of one type and tier in one zone."""

    refusals: int = 0  #: stock-outs in a row
    refused_at: float = 0.0
    refusal: Refusal | None = None
    sentence: str = ""
    hint: str = ""  #: what to do about it, where the cloud's answer tells
    pause_s: float = 0.0  #: until the next try, by AIMD
    grants: int = 0
    waits_s: tuple[float, ...] = ()  #: the latest times from asking to READY
    lives_s: tuple[float, ...] = ()  #: the latest times from READY to lost


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """All that is remembered."""

    slots: Mapping[str, SlotHistory] = field(default_factory=dict)
    zone_stats: Mapping[tuple[str, str, str], ZoneStats] = field(default_factory=dict)
    #: by (zone, type, tier)
    asks: tuple[float, ...] = ()  #: when creates were sent, of the last minute
    bad_nodes: Mapping[str, float] = field(default_factory=dict)  #: quarantined, and since when
    started_at: float = 0.0  #: the engine, the latest time
    frozen_at: float | None = None  #: since when nothing is deleted
    frozen_why: str = ""
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)  #: by job


def has_running_attempt(slot_history: SlotHistory, bid: str | None = None) -> bool:
    """An attempt is not known to be over (on this bid)."""
    attempt = slot_history.attempt
    return attempt is not None and attempt.ended_at is None and bid in {None, attempt.bid}


UNFIT = 78  #: that of one which can't run like this, as `Run` finds out: no other try helps


def bid_cost(bid: BidRecord, now: float) -> float:
    """What a bid has cost until now, as far as its price is known."""
    since = bid.ready_at or bid.granted_at
    if since is None or bid.offer.price is None:
        return 0.0
    until = bid.lost_at or bid.freed_at or now
    return max(0.0, until - since) / 3600 * bid.offer.price
