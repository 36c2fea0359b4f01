"""When so much goes away at once that we suspect our own eyes: then nothing is deleted."""

from collections.abc import Iterator, Mapping

from tpuherd.model.observed import HostWord, NodeWord, Observed, Sight
from tpuherd.model.slot_history import Bid, Trails

HOSTS_MIN = 4  #: so many silent hosts are a mass
SHARE = 0.5
BIDS_MIN = 2  #: so many bids that vanish together, and none left, are an emptied list
BELIEVED_S = 60.0  #: an emptied list is believed after so long, if it is seen again


def suspicion(observed: Observed, trails: Trails) -> str:
    """Why nothing should be deleted now, in a sentence; empty: all is plausible."""
    return silence(observed, trails) or emptiness(observed, trails)


def silence(observed: Observed, trails: Trails) -> str:
    """More than half of the hosts that we hold are silent, though the cloud calls them well."""
    held = silent = 0
    for bid in known(trails):
        hosts = observed.hosts.get(bid.name, ())
        if hosts and alive(observed.sights.get(bid.name)):
            heard = [host for host in hosts if host.heard_at]
            held += len(heard)
            silent += sum(not host.reached for host in heard)
    if silent < HOSTS_MIN or silent <= held * SHARE:
        return ""
    return (
        f"{silent} of {held} hosts fell silent, and the cloud says that their nodes are well: "
        "perhaps it is our own connection, so nothing is deleted until they are heard again"
    )


def emptiness(observed: Observed, trails: Trails) -> str:
    """All bids that were there are missing from lists that did answer."""
    missing = 0
    for bid in known(trails):
        if bid.offer.zone not in observed.zones or observed.surveyed_at <= bid.sent_at:
            continue
        if bid.name in observed.sights or speaking(observed.hosts, bid.name):
            return ""
        missing += 1
    if missing < BIDS_MIN:
        return ""
    return (
        f"all {missing} nodes that were there are missing from the cloud's lists: "
        f"nothing is deleted until that has been seen twice in {BELIEVED_S:.0f} s"
    )


def believed(observed: Observed, trails: Trails, now: float) -> bool:
    """What the lists don't show is not there: nothing is suspect, or that was long enough ago."""
    since = trails.frozen_at
    return since is None or (now >= since + BELIEVED_S and observed.surveyed_at > since)


def known(trails: Trails) -> Iterator[Bid]:
    """The bids whose nodes were there, and are not known to be lost or given back."""
    for trail in trails.slots.values():
        for bid in trail.bids.values():
            if bid.granted_at is not None and bid.lost_at is None and bid.withdrawn_at is None:
                yield bid


def alive(sight: Sight | None) -> bool:
    """The cloud says that its nodes are well."""
    return sight is not None and all(node.word is NodeWord.READY for node in sight.nodes)


def speaking(hosts: Mapping[str, tuple[HostWord, ...]], bid: str) -> bool:
    """A host of it is heard."""
    return any(host.reached for host in hosts.get(bid, ()))
