"""The phase of a bid, read off the facts, and the facts that decide its role."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from tpuherd.model.observed import (
    BidObservation,
    HostStatus,
    NodeState,
    ObservedState,
    RequestState,
)
from tpuherd.model.slot_history import BidRecord, History, SlotHistory, Verdict, has_running_attempt
from tpuherd.model.slots_and_plan import Goal, Refusal, Slot
from tpuherd.planner.policy import BidPhase, Role

LAG_S = 60.0  #: an accepted request may be missing from the lists this long
NAME_IN_USE_S = 60.0  #: until a name that was in use is requested again
UNHEALTHY_S_MAX = 900.0  #: then a sick or silent node is replaced beside it
BOOT_S_MAX = 3600.0  #: READY and not reached; twice that from 64 hosts on
MAKING_S_MAX = 7200.0  #: granted and not READY
FAULTS_MAX = 2  #: chip failures in a row after which the node is not used again
NODE_FAILURES_MAX = 5  #: other ends by the node's fault, or preparations in vain, in a row


class NodeNeed(StrEnum):
    """Whether a slot needs nodes."""

    SEEK = "seek"  #: one, and asks for it
    HOLD = "hold"  #: keeps what it has, and asks for nothing
    NONE = "none"  #: gives everything back


@dataclass(kw_only=True, slots=True)
class BidStatus:
    """One bid with what is observed of it; its role is set once all bids are known."""

    bid: BidRecord
    stage: BidPhase
    observation: BidObservation | None
    hosts: tuple[HostStatus, ...]
    whole: bool  #: every host is reached, and is the one that the cloud shows
    role: Role = Role.CANDIDATE
    why: str = ""  #: the role's reason, where it is not plain
    unfit: bool = False  #: it is to be replaced because something is wrong with it


def host_fingerprint(host: HostStatus) -> str:
    """Identify a host's incarnation and boot; `slot.prepared` has these in `hosts`."""
    return f"{host.incarnation} {host.boot}"


def node_need(slot: Slot, slot_history: SlotHistory, now: float) -> NodeNeed:
    if slot.goal is Goal.GONE:
        return NodeNeed.NONE
    if slot_history.gave_up_at is not None:
        return (
            NodeNeed.HOLD
            if now < slot_history.gave_up_at + slot.limits.failed_keep_s
            else NodeNeed.NONE
        )
    if slot.goal is Goal.IDLE:
        return NodeNeed.SEEK
    if slot_history.done_at is not None:
        return (
            NodeNeed.HOLD if now < slot_history.done_at + slot.limits.done_keep_s else NodeNeed.NONE
        )
    return NodeNeed.HOLD if has_succeeded(slot, slot_history) else NodeNeed.SEEK


def has_succeeded(slot: Slot, slot_history: SlotHistory) -> bool:
    """Whether the latest attempt succeeded at what the slot currently works on."""
    attempt = slot_history.attempt
    return (
        attempt is not None
        and attempt.verdict is Verdict.SUCCESS
        and is_current_attempt(slot, slot_history)
    )


def is_current_attempt(slot: Slot, slot_history: SlotHistory) -> bool:
    """Whether the latest attempt is of the slot's current work: in a sweep, of its trial."""
    if slot_history.attempt is None or not slot.trials:
        return slot_history.attempt is not None
    return slot_history.trial is not None and slot_history.attempt.trial == slot_history.trial


def bid_phase(
    bid: BidRecord, observation: BidObservation | None, observed: ObservedState, now: float
) -> BidPhase:
    if bid.name in observed.calling:
        return BidPhase.CALLING
    since = max(bid.sent_at, bid.withdrawn_at or 0.0)
    if bid.offer.zone not in observed.zones or observed.surveyed_at <= since:
        return BidPhase.HIDDEN
    if observation is not None:
        return phase_from_cloud(bid, observation, observed.hosts.get(bid.name, ()))
    if bid.lost_at is not None or bid.withdrawn_at is not None:
        return BidPhase.VANISHED
    taken = bid.answered_at is not None and now < bid.sent_at + LAG_S
    if taken or bid.granted_at is not None or awaits_name(bid, now):
        return BidPhase.HIDDEN
    return BidPhase.UNSEEN


def awaits_name(bid: BidRecord, now: float) -> bool:
    """Whether the exact name of its node was in use, and may not be free again yet."""
    return bid.refusal is Refusal.NAME_IN_USE and now < bid.sent_at + NAME_IN_USE_S


#: The cloud's words for a request that need no look at its nodes, the weightiest first.
REQUESTS = {
    RequestState.LEAVING: BidPhase.LEAVING,
    RequestState.ENDING: BidPhase.ENDING,
    RequestState.LOST: BidPhase.LOST,
    RequestState.REFUSED: BidPhase.REFUSED,
    RequestState.UNKNOWN: BidPhase.UNKNOWN,
}
#: The same for nodes: one such node says it of the bid.
NODES = {
    NodeState.LOST: BidPhase.LOST,
    NodeState.LEAVING: BidPhase.LEAVING,
    NodeState.UNKNOWN: BidPhase.UNKNOWN,
    NodeState.UNHEALTHY: BidPhase.UNHEALTHY,
}


def phase_from_cloud(
    bid: BidRecord, observation: BidObservation, hosts: tuple[HostStatus, ...] = ()
) -> BidPhase:
    request, nodes = observation.request, observation.nodes
    if request in REQUESTS:
        return REQUESTS[request]
    if request is RequestState.QUEUED and not nodes:
        return BidPhase.QUEUED
    words = {node.word for node in nodes}
    if words != {NodeState.READY}:
        for word, found in NODES.items():
            if word in words:
                return found
        # A node of its own that waits for machines may be refused yet.
        if request is None and bid.ready_at is None and not any(node.hosts for node in nodes):
            return BidPhase.QUEUED
        if bid.ready_at is not None and request is RequestState.ACTIVE and not nodes:
            # The request outlives its deleted node for a while; but a list of
            # nodes that is outdated, or empty, looks the same: a responding host is not gone.
            return BidPhase.HIDDEN if has_reached_host(hosts) else BidPhase.LOST
        return BidPhase.GRANTED
    if request in {None, RequestState.ACTIVE} and len(nodes) >= bid.nodes:
        return BidPhase.READY
    return BidPhase.GRANTED


def expected_hosts(bid: BidRecord, observation: BidObservation | None) -> int:
    reported, least = 0, bid.offer.hosts * bid.nodes
    for node in observation.nodes if observation is not None else ():
        reported += node.hosts
    return max(reported, least)


def has_reached_host(hosts: Iterable[HostStatus]) -> bool:
    return any(host.reached for host in hosts)


def build_bid_status(bid: BidRecord, observed: ObservedState, now: float) -> BidStatus:
    observation = observed.observations.get(bid.name)
    hosts = observed.hosts.get(bid.name, ())
    seen = bid_phase(bid, observation, observed, now)
    return BidStatus(
        bid=bid,
        stage=seen,
        observation=observation,
        hosts=hosts,
        whole=is_fully_reached(bid, observation, hosts),
    )


def is_fully_reached(
    bid: BidRecord, observation: BidObservation | None, hosts: tuple[HostStatus, ...]
) -> bool:
    """Whether every host is reached and belongs to the incarnation that the cloud shows."""
    if not hosts or len(hosts) < expected_hosts(bid, observation):
        return False
    shown = (
        {} if observation is None else {node.name: node.incarnation for node in observation.nodes}
    )
    for host in hosts:
        if not host.reached or shown.get(host.node, host.incarnation) != host.incarnation:
            return False
    return True


def is_prepared(standing: BidStatus, code_digest: str) -> bool:
    """Whether all hosts are set up for this code in their current incarnation and boot."""
    bid = standing.bid
    return bid.prepared == code_digest and {
        host_fingerprint(host) for host in standing.hosts
    } == set(bid.prepared_on)


def silent_since(standing: BidStatus, observed: ObservedState, history: History) -> float | None:
    """Since when a host that had responded does not; None: all respond, or none ever did."""
    silent = [host.heard_at for host in standing.hosts if not host.reached and host.heard_at]
    if not silent:
        return None
    return max(min(silent), observed.awake_at, history.started_at)


def needs_replacement(
    standing: BidStatus, observed: ObservedState, history: History, now: float
) -> tuple[str, float | None]:
    """The reason to replace a node, or "" and the time at which there may be one."""
    bid, dues = standing.bid, list[float]()
    if observed.surveyed_at < max(observed.awake_at, history.started_at):
        return "", float("inf")  # how it is now is not known yet: we were away
    if bid.name in history.bad_nodes:
        return "its chips failed to initialize", None
    if bid.node_failures >= NODE_FAILURES_MAX or bid.unprepared >= NODE_FAILURES_MAX:
        return f"it failed {max(bid.node_failures, bid.unprepared)} times in a row", None
    if bid.unhealthy_at is not None:
        dues.append(bid.unhealthy_at + UNHEALTHY_S_MAX)
    if bid.ready_at is None and bid.granted_at is not None:
        dues.append(bid.granted_at + MAKING_S_MAX)
    if bid.ready_at is not None and history.frozen_at is None:
        dues.append(silence_deadline(standing, bid.ready_at, observed, history))
    due = min(dues, default=float("inf"))
    if now < due:
        return "", due
    if bid.unhealthy_at is not None and due == bid.unhealthy_at + UNHEALTHY_S_MAX:
        return "it has been unhealthy for too long", None
    if bid.ready_at is None:
        return "it has not become READY in time", None
    return "its hosts have not responded for too long", None


def silence_deadline(
    standing: BidStatus, ready_at: float, observed: ObservedState, history: History
) -> float:
    """When the silence of a READY node becomes too long."""
    if standing.whole:
        return float("inf")
    silent = silent_since(standing, observed, history)
    if silent is not None:
        return silent + UNHEALTHY_S_MAX
    many = expected_hosts(standing.bid, standing.observation) >= 64
    return max(ready_at, observed.awake_at, history.started_at) + BOOT_S_MAX * (1 + many)


def is_outdated(bid: BidRecord, slot: Slot) -> bool:
    """Whether the job asks for something else now."""
    if bid.node_digest != slot.node_digest:
        return True
    offer = bid.offer
    if bid.granted_at is not None:
        return all((one.type, one.runtime) != (offer.type, offer.runtime) for one in slot.offers)
    for one in slot.offers:
        if one.zone == offer.zone and (one.type, one.runtime, one.tier, one.kind) == (
            offer.type, offer.runtime, offer.tier, offer.kind,
        ):  # fmt: skip
            return False
    return True


def choose_incumbent(held: Sequence[BidStatus], slot_history: SlotHistory) -> BidStatus:
    """Prefer a bid in use, then one that is prepared, the first that was READY, one whose hosts
    answer, the earliest grant, the lowest number.
    """
    used = (
        slot_history.attempt.bid
        if has_running_attempt(slot_history) and slot_history.attempt is not None
        else ""
    )

    def order(one: BidStatus) -> tuple[bool, bool, float, bool, float, int]:
        bid = one.bid
        ready_at = inf if bid.ready_at is None else bid.ready_at
        chosen = bid.name != used, not bid.prepared
        return *chosen, ready_at, not one.whole, bid.granted_at or 0.0, bid.generation

    return held[0] if len(held) == 1 else min(held, key=order)
