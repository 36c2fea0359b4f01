"""Join what the cloud, the hosts and pending actions show into one observed state; pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tpuherd.engine.desired import DesiredState
from tpuherd.model.observed import BidObservation, NodeState, RequestState
from tpuherd.model.slot_history import BidRecord, History
from tpuherd.model.slots_and_plan import DesiredSlots, Goal, Prepare, RequestKind
from tpuherd.ports import CloudPort, Host, Survey
from tpuherd.targets import split_bid_name

Key = TypeVar("Key")

STANDING = {NodeState.READY, NodeState.UNHEALTHY}
BOOTING_MAX = 256  #: hosts that are contacted before their nodes are READY
NOTHING = Survey(observations={}, zones=frozenset(), begun_at=0.0)


def zones_to_survey(desired: DesiredSlots, history: History) -> frozenset[str]:
    """Zones where we may request nodes, or have requested some."""
    offered = {offer.zone for slot in desired.slots.values() for offer in slot.offers}
    return frozenset(offered | {bid.offer.zone for bid in held_bids(history)})


def held_bids(history: History) -> Iterator[BidRecord]:
    for slot_history in history.slots.values():
        yield from slot_history.bids.values()


def leave_refused_jobs(
    desired_state: DesiredState, refused: Mapping[str, str]
) -> tuple[DesiredSlots, Mapping[str, str]]:
    """Leave jobs alone whose hosts say that they follow another engine; return the slots of the
    others, and a message for each slot that is left out. What is to be deleted is.

    A host's word counts for its own job only: who leads the project, the store says.
    """
    desired = desired_state.desired_slots
    alone = {
        name: f"its hosts say that {refused[slot.job]}, so this engine leaves it alone; if no other"
        " engine runs, type `herd engine stop`: the next command starts a new one"
        for name, slot in desired.slots.items()
        if slot.job in refused and slot.goal is not Goal.GONE
    }
    slots = {name: slot for name, slot in desired.slots.items() if name not in alone}
    return (replace(desired, slots=slots) if alone else desired), alone


def bids_by_name(history: History) -> Mapping[str, BidRecord]:
    return {bid.name: bid for bid in held_bids(history)}


def slots_by_bid(history: History) -> Mapping[str, str]:
    return {bid.name: bid.slot for bid in held_bids(history)}


def has_granted_node(history: History) -> bool:
    return any(bid.granted_at is not None and bid.lost_at is None for bid in held_bids(history))


def reachable_hosts(
    cloud: CloudPort, survey: Survey, slots: Mapping[str, str], ahead: Collection[str] = ()
) -> Mapping[str, Sequence[Host]]:
    """The hosts of bids whose nodes are all available, and of those `ahead` that may boot now."""
    found: dict[str, Sequence[Host]] = {}
    room = BOOTING_MAX
    for bid in slots:
        observation = survey.observations.get(bid)
        words = {node.word for node in observation.nodes} if observation else set()
        there = bool(words) and words <= STANDING
        if observation is not None and there and observation.request in (None, RequestState.ACTIVE):
            found[bid] = cloud.bid_hosts(bid)
        elif observation is not None and bid in ahead and may_boot(observation):
            hosts = [replace(host, booting=True) for host in cloud.bid_hosts(bid)]
            room -= len(hosts)
            if room >= 0:
                found[bid] = hosts
    return found


def may_boot(observation: BidObservation) -> bool:
    """Whether the cloud creates its nodes, and all of their hosts have addresses."""
    states = {node.word for node in observation.nodes}
    known = all(node.hosts for node in observation.nodes)
    granted = observation.request in (None, RequestState.GRANTED, RequestState.ACTIVE)
    return bool(states) and states <= {NodeState.MAKING, NodeState.READY} and known and granted


def bids_ahead(desired: DesiredSlots, history: History) -> frozenset[str]:
    """The bids whose hosts are set up before the cloud says READY: new ones of slots that want
    it."""
    return frozenset(
        bid.name
        for bid in held_bids(history)
        if bid.ready_at is None
        and bid.withdrawn_at is None
        and (slot := desired.slots.get(bid.slot)) is not None
        and slot.boots_ahead
    )


def own_observations(survey: Survey, owner: str) -> list[BidObservation]:
    found = []
    for observation in survey.observations.values():
        name = split_bid_name(observation.bid)
        if name is not None and name.owner == owner:
            found.append(observation)
    return found


def unlisted_creations(survey: Survey, history: History) -> Iterator[BidRecord]:
    """Accepted creations that the lists do not show: their operations tell the outcome."""
    for bid in held_bids(history):
        unsettled = bid.ready_at is None and bid.refusal is None and bid.withdrawn_at is None
        if (
            bid.offer.kind is RequestKind.DIRECT
            and unsettled
            and bid.name not in survey.observations
            and bid.offer.zone in survey.zones
            and bid.answered_at is not None
            and survey.begun_at > bid.answered_at
        ):
            yield bid


def outdated_preparations(desired: DesiredSlots, preparing: Mapping[Key, Prepare]) -> list[Key]:
    found = []
    for key, action in preparing.items():
        slot = desired.slots.get(action.slot)
        if slot is None or slot.code_digest != action.code_digest:
            found.append(key)
    return found
