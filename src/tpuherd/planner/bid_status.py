"""The phase of a bid, read off the facts, and the facts that decide its role."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from tpuherd.model.observed import (
    BidObservation,
    HostStatus,
    NodeState,
    ObservedState,
    Outlook,
    RequestState,
)
from tpuherd.model.slot_history import BidRecord, History, SlotHistory, Verdict, has_running_attempt
from tpuherd.model.slots_and_plan import CHEAP_TIERS, Goal, Refusal, Slot
from tpuherd.planner.policy import BidPhase, Role

LAG_S = 60.0  #: an accepted request may be missing from the lists this long
NAME_IN_USE_S = 60.0  #: until a name that was in use is requested again
UNHEALTHY_S_MAX = 900.0  #: then a sick or silent node is replaced beside it
SPARE_S_MAX = 300.0  #: the same for a spare node, which is given back; to answer it has as long
SILENT_S = 60.0  #: a host without a sign of life for so long is silent
QUIET_S = 10.0  #: the same if others of its gang made steps so long after its last sign of life
RETURN_S = 120.0  #: how long a silent host may take to answer an engine that was away
OFF_S_MAX = 10.0  #: the same for spot hosts that are powered off and do not say why
BOOT_S_MAX = 3600.0  #: READY and not reached; twice that from 64 hosts on
MAKING_S_MAX = 7200.0  #: granted and not READY
FAULTS_MAX = 2  #: chip failures in a row after which the node is not used again
HALTS_MAX = 3  #: how often an attempt that has ended is told to stop before its node is replaced
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
    spare: bool = False  #: nothing is set up on it, and the slot holds an older node


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
    NodeState.STOPPING: BidPhase.LOST,
    NodeState.LEAVING: BidPhase.LEAVING,
    NodeState.UNKNOWN: BidPhase.UNKNOWN,
    NodeState.UNHEALTHY: BidPhase.UNHEALTHY,
}

#: What ends with a node that is stopped or gone.
GOING = {BidPhase.LOST, BidPhase.VANISHED, BidPhase.ENDING, BidPhase.LEAVING}


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


def is_stopped_or_gone(one: BidStatus, ended: Collection[str] = ()) -> bool:
    """Whether the cloud says of every node that it is stopped, or lists it no longer. One that is
    being suspended, stopped or deleted may still run, and one that is frozen may thaw. `ended`: the
    nodes all of whose hosts have reported the end of what ran there.
    """
    nodes = one.observation.nodes if one.observation is not None else ()
    left = (node for node in nodes if node.name not in ended)
    return one.stage in GOING and all(node.word is NodeState.LOST for node in left)


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


def away_until(observed: ObservedState, history: History) -> float:
    """Until when this engine could not hear its hosts: it slept, or did not run."""
    return max(observed.awake_at, history.started_at)


def silent_hosts(standing: BidStatus) -> list[HostStatus]:
    """The hosts that do not respond now, and have responded to this engine or an earlier one."""
    known = bool(standing.bid.prepared)
    return [host for host in standing.hosts if not host.reached and (host.heard_at or known)]


def silent_since(
    standing: BidStatus, observed: ObservedState, history: History, attempt: str = ""
) -> tuple[float, float]:
    """The last sign of life of the hosts that do not respond, and when they count as silent:
    after a minute, or at once if the others of the attempt made steps meanwhile; inf: all respond.
    """
    back_at = away_until(observed, history)
    signs = [host.heard_at or back_at for host in silent_hosts(standing)]
    if not signs:
        return inf, inf
    since = min(signs)
    works = [work for host in standing.hosts if host.reached for work in host.works]
    steps = [work.stepped_at for work in works if work.attempt == attempt and work.stepped_at]
    if since > back_at and max(steps, default=0.0) > max(signs) + QUIET_S:
        return since, since
    return since, max(since, back_at) + SILENT_S


def needs_replacement(
    standing: BidStatus,
    observed: ObservedState,
    history: History,
    now: float,
    *,
    decided: bool = False,
    exact: bool = False,
) -> tuple[str, float | None]:
    """The reason to replace a node, or "" and the time at which there may be one.

    `decided`: another was requested since its trouble began. Then that trouble counts until it is
    over, even right after an absence of the engine. `exact`: no other node can stand beside it, so
    herd waits for one that shuts down.
    """
    bid, dues = standing.bid, list[float]()
    unhealthy_s = SPARE_S_MAX if standing.spare else UNHEALTHY_S_MAX
    if fault := proven_fault(bid, history):
        return fault, None
    if observed.surveyed_at < away_until(observed, history) and not decided:
        return "", inf  # how it is now is not known yet
    if bid.unhealthy_at is not None:
        dues.append(bid.unhealthy_at + unhealthy_s)
    if bid.ready_at is None and bid.granted_at is not None:
        dues.append(bid.granted_at + MAKING_S_MAX)
    if bid.ready_at is not None and (decided or history.frozen_at is None):
        dues.append(silence_deadline(standing, observed, history, decided=decided))
    off_at = inf
    if not exact and history.frozen_at is None:
        off_at = shutdown_deadline(standing, away_until(observed, history))
    due = min([*dues, off_at])
    if now < due:
        return "", due
    if now >= off_at:
        return "a host of it was shut down, and is not back", None
    if bid.unhealthy_at is not None and due == bid.unhealthy_at + unhealthy_s:
        return "it has been unhealthy for too long", None
    if bid.ready_at is None:
        return "it has not become READY in time", None
    return "its hosts have not responded for too long", None


def proven_fault(bid: BidRecord, history: History) -> str:
    """What is known to be wrong with a node, however it looks now; "" if nothing is."""
    if bid.name in history.bad_nodes:
        return "its chips failed to initialize"
    if bid.node_failures >= NODE_FAILURES_MAX or bid.unprepared >= NODE_FAILURES_MAX:
        return f"it failed {max(bid.node_failures, bid.unprepared)} times in a row"
    if bid.halts >= HALTS_MAX:
        return f"what ran there can't be ended: it was told to stop {bid.halts} times"
    return ""


def silence_deadline(
    standing: BidStatus, observed: ObservedState, history: History, *, decided: bool
) -> float:
    """When the silence of a READY node becomes too long."""
    bid, back_at = standing.bid, away_until(observed, history)
    silent_s, boot_s = UNHEALTHY_S_MAX, BOOT_S_MAX
    if standing.spare:
        silent_s = boot_s = SPARE_S_MAX
    if standing.whole:
        return inf
    if bid.silent_at is not None:
        due = bid.silent_at - SILENT_S + silent_s
        return due if decided else max(due, back_at + RETURN_S)
    since, _ = silent_since(standing, observed, history)
    if since < inf:
        return max(since, back_at) + silent_s
    many = expected_hosts(bid, standing.observation) >= 64
    return max(bid.ready_at or 0.0, back_at) + boot_s * (1 + many)


def shutdown_deadline(standing: BidStatus, back_at: float) -> float:
    """When a host that shuts down has been away for too long, although the cloud lists its node.

    The node is awaited for as long as the cloud lists it. What is due then is another one beside
    it, as for any silence; the one that is ready first stays. A shutdown is a failure neither of
    the script nor of the node. `back_at`: until when this engine could not hear the host.
    """
    cheap, due = standing.bid.offer.tier in CHEAP_TIERS, inf
    for host in standing.hosts:
        if host.is_leaving:
            likely = cheap and host.outlook is Outlook.OFF  # to be a preemption without a notice
            noticed_at = max(host.notice_at or 0.0, back_at)
            due = min(due, noticed_at + (OFF_S_MAX if likely else UNHEALTHY_S_MAX))
    return due


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
    answer, the earliest grant, the lowest number. A silent one comes after a prepared one that
    answers.
    """
    used = (
        slot_history.attempt.bid
        if has_running_attempt(slot_history) and slot_history.attempt is not None
        else ""
    )

    answering = any(one.whole and one.bid.prepared for one in held)

    def rank_bid(one: BidStatus) -> tuple[bool, bool, bool, float, bool, float, int]:
        bid = one.bid
        ready_at = inf if bid.ready_at is None else bid.ready_at
        silent = answering and bid.silent_at is not None and not one.whole
        chosen = silent, bid.name != used, not bid.prepared
        return *chosen, ready_at, not one.whole, bid.granted_at or 0.0, bid.generation

    return held[0] if len(held) == 1 else min(held, key=rank_bid)
