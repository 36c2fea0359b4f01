"""What is seen, joined: the cloud's word, the hosts' word, and what is under way. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from tpuherd.model.observed import NodeWord, RequestWord, Sight
from tpuherd.model.slot_history import Bid, Trails
from tpuherd.model.slots_and_plan import Kind, Prepare, Wishes
from tpuherd.ports import CloudPort, Host, Survey
from tpuherd.targets import slot_of

Key = TypeVar("Key")

STANDING = {NodeWord.READY, NodeWord.SICK}
NOTHING = Survey(sights={}, zones=frozenset(), begun_at=0.0)


def zones(wishes: Wishes, trails: Trails) -> frozenset[str]:
    """Those that we must hear of: where we may ask, and where we have asked."""
    offered = {offer.zone for slot in wishes.slots.values() for offer in slot.offers}
    return frozenset(offered | {bid.offer.zone for bid in bids(trails)})


def bids(trails: Trails) -> Iterator[Bid]:
    """All that we hold, or may hold."""
    for trail in trails.slots.values():
        yield from trail.bids.values()


def held(trails: Trails) -> Mapping[str, str]:
    """Slots by bid."""
    return {bid.name: bid.slot for bid in bids(trails)}


def holding(trails: Trails) -> bool:
    """Whether there is a node of ours that could be taken from us, links silent or not."""
    return any(bid.granted_at is not None and bid.lost_at is None for bid in bids(trails))


def standing(
    cloud: CloudPort, survey: Survey, slots: Mapping[str, str]
) -> Mapping[str, Sequence[Host]]:
    """The hosts of those bids whose every node is there to be worked on."""
    found: dict[str, Sequence[Host]] = {}
    for bid in slots:
        sight = survey.sights.get(bid)
        words = {node.word for node in sight.nodes} if sight else set()
        there = bool(words) and words <= STANDING
        if sight is not None and there and sight.request in (None, RequestWord.ACTIVE):
            found[bid] = cloud.hosts(bid)
    return found


def owned(survey: Survey, owner: str) -> list[Sight]:
    """What bears our name."""
    found = []
    for sight in survey.sights.values():
        name = slot_of(sight.bid)
        if name is not None and name.owner == owner:
            found.append(sight)
    return found


def unlisted(survey: Survey, trails: Trails) -> Iterator[Bid]:
    """Creations that were taken and show nothing: how they came out stands elsewhere."""
    for bid in bids(trails):
        unsettled = bid.ready_at is None and bid.refusal is None and bid.withdrawn_at is None
        if (
            bid.offer.kind is Kind.DIRECT
            and unsettled
            and bid.name not in survey.sights
            and bid.offer.zone in survey.zones
            and bid.answered_at is not None
            and survey.begun_at > bid.answered_at
        ):
            yield bid


def outdated(wishes: Wishes, preparing: Mapping[Key, Prepare]) -> list[Key]:
    """What is prepared for other code or another setup than is wished by now."""
    found = []
    for key, action in preparing.items():
        slot = wishes.slots.get(action.slot)
        if slot is None or slot.code_digest != action.code_digest:
            found.append(key)
    return found
