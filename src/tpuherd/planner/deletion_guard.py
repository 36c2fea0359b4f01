"""Pause deletions when so many hosts or nodes disappear at once that our view may be wrong."""

from collections.abc import Iterator, Mapping

from tpuherd.model.observed import BidObservation, HostStatus, NodeState, ObservedState
from tpuherd.model.slot_history import BidRecord, History

HOSTS_MIN = 4  #: silent hosts that look suspicious
SHARE = 0.5
BIDS_MIN = 2  #: bids that vanish together and leave none look suspicious
BELIEVED_S = 60.0  #: then an empty list is believed if it is seen again


def freeze_reason(observed: ObservedState, history: History) -> str:
    """Why nothing should be deleted now; "" if all observations are plausible."""
    return silence_reason(observed, history) or empty_list_reason(observed, history)


def silence_reason(observed: ObservedState, history: History) -> str:
    """Whether over half of our hosts are silent although the cloud calls their nodes healthy."""
    held = silent = 0
    for bid in known_bids(history):
        hosts = observed.hosts.get(bid.name, ())
        if hosts and has_ready_nodes(observed.observations.get(bid.name)):
            heard = [host for host in hosts if host.heard_at or bid.silent_at is not None]
            held += len(heard)
            silent += sum(not host.reached for host in heard)
    if silent < HOSTS_MIN or silent <= held * SHARE:
        return ""
    return (
        f"{silent} of {held} hosts stopped responding although the cloud reports their nodes"
        " healthy; deletions are paused until they respond"
    )


def empty_list_reason(observed: ObservedState, history: History) -> str:
    """Whether all our bids are missing from lists that the cloud did return."""
    missing = 0
    for bid in known_bids(history):
        if bid.offer.zone not in observed.zones or observed.surveyed_at <= bid.sent_at:
            continue
        if bid.name in observed.observations or is_bid_reached(observed.hosts, bid.name):
            return ""
        missing += 1
    if missing < BIDS_MIN:
        return ""
    return (
        f"all {missing} nodes are missing from the cloud's lists;"
        f" deletions are paused until a second look {BELIEVED_S:.0f} s later confirms it"
    )


def can_trust_absence(observed: ObservedState, history: History, now: float) -> bool:
    """Whether a node missing from the lists is really gone."""
    since = history.frozen_at
    return since is None or (now >= since + BELIEVED_S and observed.surveyed_at > since)


def known_bids(history: History) -> Iterator[BidRecord]:
    """Bids that were granted and are neither lost nor withdrawn."""
    for slot_history in history.slots.values():
        for bid in slot_history.bids.values():
            if bid.granted_at is not None and bid.lost_at is None and bid.withdrawn_at is None:
                yield bid


def has_ready_nodes(observation: BidObservation | None) -> bool:
    return observation is not None and all(
        node.word is NodeState.READY for node in observation.nodes
    )


def is_bid_reached(hosts: Mapping[str, tuple[HostStatus, ...]], bid: str) -> bool:
    return any(host.reached for host in hosts.get(bid, ()))
