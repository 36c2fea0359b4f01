"""Which stage a bid is in and what it is to its slot, read off the facts. Remembers nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tpuherd.model.observed import HostWord, NodeWord, Observed, RequestWord, Sight
from tpuherd.model.slot_history import Bid, Trail, Trails, Verdict, running
from tpuherd.model.slots_and_plan import Goal, Slot
from tpuherd.planner.policy import Role, Stage

LAG_S = 60.0  #: what the cloud took may be missing from its lists for so long
SICK_S_MAX = 900.0  #: then a sick or silent node is replaced beside it
BOOT_S_MAX = 3600.0  #: READY and not reached; twice that from 64 hosts on
MAKING_S_MAX = 7200.0  #: granted and not READY
FAULTS_MAX = 2  #: chips that did not come up, in a row: the node is not tried any more
STUMBLES_MAX = 5  #: other ends by the node's fault, or preparations in vain, in a row


class Need(StrEnum):
    """Whether a slot wants nodes at all."""

    SEEK = "seek"  #: one, and asks for it
    HOLD = "hold"  #: keeps what it has, and asks for nothing
    NONE = "none"  #: gives everything back


@dataclass(kw_only=True, slots=True)
class Standing:
    """One bid with what is seen of it; its role is found when all of them are known."""

    bid: Bid
    stage: Stage
    sight: Sight | None
    hosts: tuple[HostWord, ...]
    whole: bool  #: every host is reached, and is the one that the cloud shows
    role: Role = Role.CANDIDATE
    why: str = ""  #: the role's reason, where it is not plain
    unfit: bool = False  #: it is to be replaced because something is wrong with it


def mark(host: HostWord) -> str:
    """What a host was prepared on: `slot.prepared` has these in `on`."""
    return f"{host.incarnation} {host.boot}"


def need(slot: Slot, trail: Trail, now: float) -> Need:
    """Whether the slot asks, keeps or gives back."""
    if slot.goal is Goal.GONE:
        return Need.NONE
    if trail.gave_up_at is not None:
        return Need.HOLD if now < trail.gave_up_at + slot.limits.failed_keep_s else Need.NONE
    if slot.goal is Goal.IDLE:
        return Need.SEEK
    if trail.done_at is not None:
        return Need.HOLD if now < trail.done_at + slot.limits.done_keep_s else Need.NONE
    return Need.HOLD if succeeded(slot, trail) else Need.SEEK


def succeeded(slot: Slot, trail: Trail) -> bool:
    """The latest attempt did what it should, and what the slot is still to do."""
    attempt = trail.attempt
    return attempt is not None and attempt.verdict is Verdict.SUCCESS and current(slot, trail)


def current(slot: Slot, trail: Trail) -> bool:
    """The latest attempt is of what the slot works on now: in a sweep, of its trial."""
    if trail.attempt is None or not slot.trials:
        return trail.attempt is not None
    return trail.trial is not None and trail.attempt.trial == trail.trial


def stage(bid: Bid, sight: Sight | None, observed: Observed, now: float) -> Stage:
    """How far a bid is."""
    if bid.name in observed.calling:
        return Stage.CALLING
    since = max(bid.sent_at, bid.withdrawn_at or 0.0)
    if bid.offer.zone not in observed.zones or observed.surveyed_at <= since:
        return Stage.HIDDEN
    if sight is not None:
        return seen(bid, sight, observed.hosts.get(bid.name, ()))
    if bid.lost_at is not None or bid.withdrawn_at is not None:
        return Stage.VANISHED
    taken = bid.answered_at is not None and now < bid.sent_at + LAG_S
    return Stage.HIDDEN if taken or bid.granted_at is not None else Stage.UNSEEN


#: The cloud's words for a request that need no look at its nodes, the weightiest first.
REQUESTS = {
    RequestWord.LEAVING: Stage.LEAVING,
    RequestWord.ENDING: Stage.ENDING,
    RequestWord.LOST: Stage.LOST,
    RequestWord.REFUSED: Stage.REFUSED,
    RequestWord.UNKNOWN: Stage.UNKNOWN,
}
#: The same for nodes: one such node says it of the bid.
NODES = {
    NodeWord.LOST: Stage.LOST,
    NodeWord.LEAVING: Stage.LEAVING,
    NodeWord.UNKNOWN: Stage.UNKNOWN,
    NodeWord.SICK: Stage.SICK,
}


def seen(bid: Bid, sight: Sight, hosts: tuple[HostWord, ...] = ()) -> Stage:
    """What the cloud shows, in one word."""
    request, nodes = sight.request, sight.nodes
    if request in REQUESTS:
        return REQUESTS[request]
    if request is RequestWord.QUEUED and not nodes:
        return Stage.QUEUED
    words = {node.word for node in nodes}
    if words != {NodeWord.READY}:
        for word, found in NODES.items():
            if word in words:
                return found
        # A node of its own that waits for machines may be refused yet.
        if request is None and bid.ready_at is None and not any(node.hosts for node in nodes):
            return Stage.QUEUED
        if bid.ready_at is not None and request is RequestWord.ACTIVE and not nodes:
            # The request lives on for a while when its node was deleted behind it; but a list of
            # nodes that is behind the times, or empty, says the same: whoever speaks is not gone.
            return Stage.HIDDEN if speaking(hosts) else Stage.LOST
        return Stage.GRANTED
    if request in {None, RequestWord.ACTIVE} and len(nodes) >= bid.nodes:
        return Stage.READY
    return Stage.GRANTED


def expected(bid: Bid, sight: Sight | None) -> int:
    """So many hosts a bid has in all."""
    told, least = 0, bid.offer.hosts * bid.nodes
    for node in sight.nodes if sight is not None else ():
        told += node.hosts
    return max(told, least)


def speaking(hosts: Iterable[HostWord]) -> bool:
    """Somebody is heard there."""
    return any(host.reached for host in hosts)


def standing(bid: Bid, observed: Observed, now: float) -> Standing:
    """A bid with all that is seen of it."""
    sight = observed.sights.get(bid.name)
    hosts = observed.hosts.get(bid.name, ())
    seen = stage(bid, sight, observed, now)
    return Standing(bid=bid, stage=seen, sight=sight, hosts=hosts, whole=whole(bid, sight, hosts))


def whole(bid: Bid, sight: Sight | None, hosts: tuple[HostWord, ...]) -> bool:
    """Every host is reached, and is the one that the cloud shows."""
    if not hosts or len(hosts) < expected(bid, sight):
        return False
    shown = {} if sight is None else {node.name: node.incarnation for node in sight.nodes}
    for host in hosts:
        if not host.reached or shown.get(host.node, host.incarnation) != host.incarnation:
            return False
    return True


def prepared(standing: Standing, code_digest: str) -> bool:
    """All hosts are set up for this code since they were made and booted."""
    bid = standing.bid
    return bid.prepared == code_digest and {mark(host) for host in standing.hosts} == set(
        bid.prepared_on
    )


def silent_since(standing: Standing, observed: Observed, trails: Trails) -> float | None:
    """Since when a host that was heard before is not; None: all are heard, or none ever was."""
    silent = [host.heard_at for host in standing.hosts if not host.reached and host.heard_at]
    if not silent:
        return None
    return max(min(silent), observed.awake_at, trails.started_at)


def worn(
    standing: Standing, observed: Observed, trails: Trails, now: float
) -> tuple[str, float | None]:
    """Why a node is to be replaced beside it, and else when it might have to be."""
    bid, dues = standing.bid, list[float]()
    if observed.surveyed_at < max(observed.awake_at, trails.started_at):
        return "", float("inf")  # how it is now is not known yet: we were away
    if bid.name in trails.bad_nodes:
        return "its chips did not come up", None
    if bid.stumbles >= STUMBLES_MAX or bid.unprepared >= STUMBLES_MAX:
        return f"it failed {max(bid.stumbles, bid.unprepared)} times in a row", None
    if bid.sick_at is not None:
        dues.append(bid.sick_at + SICK_S_MAX)
    if bid.ready_at is None and bid.granted_at is not None:
        dues.append(bid.granted_at + MAKING_S_MAX)
    if bid.ready_at is not None and trails.frozen_at is None:
        dues.append(unheard_until(standing, bid.ready_at, observed, trails))
    due = min(dues, default=float("inf"))
    if now < due:
        return "", due
    if bid.sick_at is not None and due == bid.sick_at + SICK_S_MAX:
        return "it has been sick for too long", None
    if bid.ready_at is None:
        return "it does not become READY", None
    return "its hosts have not been heard of for too long", None


def unheard_until(standing: Standing, ready_at: float, observed: Observed, trails: Trails) -> float:
    """When the silence of a READY node will have been too long."""
    if standing.whole:
        return float("inf")
    silent = silent_since(standing, observed, trails)
    if silent is not None:
        return silent + SICK_S_MAX
    many = expected(standing.bid, standing.sight) >= 64
    return max(ready_at, observed.awake_at, trails.started_at) + BOOT_S_MAX * (1 + many)


def outdated(bid: Bid, slot: Slot) -> bool:
    """The wish asks for something else now."""
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


def best(held: Sequence[Standing], trail: Trail) -> Standing:
    """The incumbent: launched on or prepared, else the earliest grant, then the lowest number."""
    used = trail.attempt.bid if running(trail) and trail.attempt is not None else ""

    def order(one: Standing) -> tuple[bool, bool, float, int]:
        bid = one.bid
        return bid.name != used, not bid.prepared, bid.granted_at or 0.0, bid.generation

    return held[0] if len(held) == 1 else min(held, key=order)
