"""Join what the cloud, the hosts and pending actions show into one observed state; pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from tpuherd.model.observed import BidObservation, NodeState, RequestState
from tpuherd.model.slot_history import BidRecord, History
from tpuherd.model.slots_and_plan import DesiredSlots, Prepare, RequestKind
from tpuherd.ports import CloudPort, Host, Survey
from tpuherd.targets import split_bid_name

Key = TypeVar("Key")

STANDING = {NodeState.READY, NodeState.UNHEALTHY}
NOTHING = Survey(sights={}, zones=frozenset(), begun_at=0.0)


def zones_to_survey(wishes: DesiredSlots, history: History) -> frozenset[str]:
    """Those that we must hear of: where we may ask, and where we have asked."""
    offered = {offer.zone for slot in wishes.slots.values() for offer in slot.offers}
    return frozenset(offered | {bid.offer.zone for bid in held_bids(history)})


def held_bids(history: History) -> Iterator[BidRecord]:
    """All that we hold, or may hold."""
    for slot_history in history.slots.values():
        yield from slot_history.bids.values()


def slots_by_bid(history: History) -> Mapping[str, str]:
    """Slots by bid."""
    return {bid.name: bid.slot for bid in held_bids(history)}


def has_granted_node(history: History) -> bool:
    """Whether there is a node of ours that could be taken from us, links silent or not."""
    return any(bid.granted_at is not None and bid.lost_at is None for bid in held_bids(history))


def reachable_hosts(
    cloud: CloudPort, survey: Survey, slots: Mapping[str, str]
) -> Mapping[str, Sequence[Host]]:
    """The hosts of those bids whose every node is there to be worked on."""
    found: dict[str, Sequence[Host]] = {}
    for bid in slots:
        sight = survey.sights.get(bid)
        words = {node.word for node in sight.nodes} if sight else set()
        there = bool(words) and words <= STANDING
        if sight is not None and there and sight.request in (None, RequestState.ACTIVE):
            found[bid] = cloud.bid_hosts(bid)
    return found


def own_observations(survey: Survey, owner: str) -> list[BidObservation]:
    """What bears our name."""
    found = []
    for sight in survey.sights.values():
        name = split_bid_name(sight.bid)
        if name is not None and name.owner == owner:
            found.append(sight)
    return found


def unlisted_creations(survey: Survey, history: History) -> Iterator[BidRecord]:
    """Creations that were taken and show nothing: how they came out stands elsewhere."""
    for bid in held_bids(history):
        unsettled = bid.ready_at is None and bid.refusal is None and bid.withdrawn_at is None
        if (
            bid.offer.kind is RequestKind.DIRECT
            and unsettled
            and bid.name not in survey.sights
            and bid.offer.zone in survey.zones
            and bid.answered_at is not None
            and survey.begun_at > bid.answered_at
        ):
            yield bid


def outdated_preparations(wishes: DesiredSlots, preparing: Mapping[Key, Prepare]) -> list[Key]:
    """What is prepared for other code or another setup than is wished by now."""
    found = []
    for key, action in preparing.items():
        slot = wishes.slots.get(action.slot)
        if slot is None or slot.code_digest != action.code_digest:
            found.append(key)
    return found
