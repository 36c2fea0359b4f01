"""Turn new observations of a bid into events: granted, ready, unhealthy, lost, deleted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from tpuherd.model.observed import BidObservation, HostStatus, NodeState, ObservedState, Outlook
from tpuherd.model.slot_history import SILENT, BidRecord, History
from tpuherd.model.slots_and_plan import Refusal
from tpuherd.planner.bid_status import FAULTS_MAX, BidStatus, has_reached_host, silent_hosts
from tpuherd.planner.policy import BidPhase
from tpuherd.planner.retry_limits import format_times

THERE = {BidPhase.GRANTED, BidPhase.READY, BidPhase.UNHEALTHY}
OVER = {BidPhase.LOST, BidPhase.ENDING, BidPhase.LEAVING}


@dataclass(frozen=True, kw_only=True, slots=True)
class BidEvent:
    """An event of one bid, without its time."""

    kind: str
    why: str
    facts: Mapping[str, Any]


def find_bid_events(
    bid: BidRecord,
    stage: BidPhase,
    observation: BidObservation | None,
    hosts: tuple[HostStatus, ...],
) -> Iterator[BidEvent]:
    if observation is None:
        yield from absence_events(bid, stage)
    elif stage not in {BidPhase.CALLING, BidPhase.HIDDEN}:
        yield from observation_events(bid, stage, observation)
    if hosts and bid.notice_at is None and bid.withdrawn_at is None:
        yield from notice_events(bid, hosts)


def observation_events(
    bid: BidRecord, stage: BidPhase, observation: BidObservation
) -> Iterator[BidEvent]:
    if bid.missed_at is not None:
        yield make_bid_event("bid.reappeared", bid, "the cloud shows it again")
    if stage in THERE and bid.granted_at is None:
        yield make_bid_event("bid.granted", bid, f"granted in {bid.offer.zone}")
    if stage is BidPhase.READY and bid.ready_at is None:
        yield make_bid_event("bid.ready", bid, "READY")
    if stage is BidPhase.READY and bid.unhealthy_at is not None:
        yield make_bid_event("bid.healthy", bid, "healthy again")
    if stage is BidPhase.UNHEALTHY and bid.unhealthy_at is None:
        state = next(
            one.health or one.state for one in observation.nodes if one.word is NodeState.UNHEALTHY
        )
        yield make_bid_event("bid.unhealthy", bid, f"the cloud reports {state}", state=state)
    if stage is BidPhase.REFUSED and bid.refusal is None:
        refusal, sentence = (
            observation.refusal or Refusal.BROKEN,
            observation.sentence or observation.state,
        )
        yield make_bid_event("bid.refused", bid, sentence, refusal=str(refusal), message=sentence)
    if stage not in OVER or bid.lost_at is not None:
        return
    if bid.withdrawn_at is None:
        how = describe_loss(stage, observation)
        yield make_bid_event("bid.lost", bid, f"{bid.name} was {how}", cause=how)
    elif bid.granted_at is not None and bid.nodes_deleted_at is None and not observation.nodes:
        yield make_bid_event(
            "bid.nodes_deleted", bid, "its nodes are deleted; its request is still being deleted"
        )


def notice_events(bid: BidRecord, hosts: tuple[HostStatus, ...]) -> Iterator[BidEvent]:
    going = next((host for host in hosts if host.outlook is Outlook.GONE), None)
    if going is not None:
        why = f"{going.name} received a notice: {going.notice}"
        yield make_bid_event("bid.notice_received", bid, why, host=going.name, notice=going.notice)


def silence_events(one: BidStatus, since: float) -> Iterator[BidEvent]:
    """Its hosts have stopped answering, `since` then, or all of them answer again."""
    bid = one.bid
    if bid.silent_at is None and since < inf:
        hosts = [host.name for host in silent_hosts(one)]
        why = f"no sign of life of {', '.join(hosts)}"
        facts = {"code": SILENT, "state": SILENT, "hosts": hosts, "since": since}
        yield make_bid_event("bid.unhealthy", bid, why, **facts)
    elif bid.silent_at is not None and one.whole:
        paused_s = max(
            sum(took_s for at, took_s in host.pauses if at >= bid.silent_at) for host in one.hosts
        )
        why = f"all of its hosts answer again; they stood still for {paused_s:.0f} s"
        yield make_bid_event("bid.healthy", bid, why, code=SILENT, paused_s=paused_s)


def absence_events(bid: BidRecord, stage: BidPhase) -> Iterator[BidEvent]:
    """Events of a bid missing in a zone that answered after the request."""
    if stage is BidPhase.VANISHED and bid.withdrawn_at is not None:
        yield make_bid_event("bid.deleted", bid, "deleted")
    elif bid.refusal is not None and stage is BidPhase.UNSEEN:
        yield make_bid_event("bid.deleted", bid, "refused and not created")


def vanishing_events(
    bid: BidRecord, hosts: tuple[HostStatus, ...], observed: ObservedState, *, sure: bool
) -> Iterator[BidEvent]:
    """A granted bid counts as lost if two surveys omit it and none of its hosts responds."""
    known = bid.granted_at is not None and bid.lost_at is None and bid.withdrawn_at is None
    fresh = bid.offer.zone in observed.zones and observed.surveyed_at > bid.sent_at
    if not known or not fresh or bid.name in observed.observations or bid.name in observed.calling:
        return
    if has_reached_host(hosts):
        return
    if bid.missed_at is None:
        yield make_bid_event("bid.missing", bid, "the cloud's lists do not show it")
    elif observed.surveyed_at > bid.missed_at and sure:
        yield make_bid_event(
            "bid.lost", bid, f"{bid.name} vanished from the cloud's lists", cause="vanished"
        )


def describe_loss(stage: BidPhase, observation: BidObservation) -> str:
    if stage is BidPhase.LEAVING:
        return "deleted by someone else"
    for node in observation.nodes:
        if node.word in {NodeState.LOST, NodeState.STOPPING}:
            return node.state.lower() or "lost"
    return (observation.state or "lost").lower()


def quarantine_events(bid: BidRecord, history: History) -> Iterator[BidEvent]:
    """Quarantine a node whose chips failed to initialize twice in a row."""
    if bid.faults >= FAULTS_MAX and bid.name not in history.bad_nodes:
        why = f"its chips failed to initialize {format_times(bid.faults)} in a row"
        yield BidEvent(kind="node.quarantined", why=why, facts={"node": bid.name, "why": why})


def make_bid_event(kind: str, bid: BidRecord, why: str, **facts: Any) -> BidEvent:
    return BidEvent(kind=kind, why=why, facts={"bid": bid.name, **facts})
