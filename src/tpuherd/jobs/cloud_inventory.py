"""One look at the cloud: which resources carry an owner's name, and whose they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tpuherd.catalogue import zones
from tpuherd.cloud.bids_api import BidsApi
from tpuherd.history.apply_bid_events import read_offer
from tpuherd.jobs.open_project import Session
from tpuherd.model.observed import BidObservation
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import HistoryEvent, Withdraw
from tpuherd.ports import Survey
from tpuherd.settings import project_access
from tpuherd.targets import BidName, split_bid_name


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudInventory:
    bids: BidsApi
    survey: Survey
    owner: str
    owners: frozenset[str]  #: ours and adopted ones

    @property
    def own_bids(self) -> Mapping[str, BidObservation]:
        return self.bids_of_owners(self.owners)

    def bids_of_owners(self, owners: frozenset[str]) -> Mapping[str, BidObservation]:
        observations = self.survey.observations
        return {
            bid: observation
            for bid, observation in observations.items()
            if parse_bid_name(bid).owner in owners
        }

    @property
    def silent_zones(self) -> frozenset[str]:
        """Zones that did not answer, whose contents are unknown."""
        return frozenset(zones()) - self.survey.zones

    def find_orphans(
        self, histories: History, *, of: frozenset[str] | None = None
    ) -> Mapping[str, BidObservation]:
        """Return the bids of ours, or of other owners, that the store does not know."""
        known = {bid for history in histories.slots.values() for bid in history.bids}
        there = self.own_bids if of is None else self.bids_of_owners(of)
        return {bid: observation for bid, observation in there.items() if bid not in known}


async def survey_cloud(here: Session) -> CloudInventory:
    """Look at all known zones."""
    cloud = await here.cloud()
    bids = BidsApi(cloud, here.clock, here.place.ssh_port, cloud.list_nodes)
    owner = project_access.find_owner_id(here.place)
    return CloudInventory(
        bids=bids,
        survey=await bids.survey_bids(zones()),
        owner=owner,
        owners=project_access.own_owner_ids(here.place),
    )


def parse_bid_name(bid: str) -> BidName:
    """Parse a name that a survey listed, which is always a bid's name."""
    found = split_bid_name(bid)
    assert found is not None
    return found


def hourly_price(observation: BidObservation) -> float | None:
    """Return the price on the bid's card; 0 without nodes, None if not known."""
    if not observation.nodes:
        return 0.0
    offer = observation.card.get("offer")
    return read_offer(offer).price if isinstance(offer, Mapping) else None


def state_text(observation: BidObservation) -> str:
    """Return the state as the cloud calls it."""
    return (
        observation.state
        or ", ".join(sorted({node.state for node in observation.nodes}))
        or "there"
    )


def withdrawal_event(observation: BidObservation, now: float, why: str) -> HistoryEvent:
    """Return the event without which nothing is deleted."""
    name = parse_bid_name(observation.bid)
    facts = {"bid": observation.bid, "zone": observation.zone, "why": why}
    return HistoryEvent(at=now, kind="bid.withdrawn", job=name.job, slot=name.slot, facts=facts)


async def withdraw_bids(inventory: CloudInventory, observations: Iterable[BidObservation]) -> None:
    """Carry out recorded withdrawals."""
    for observation in observations:
        step = Withdraw(
            bid=observation.bid, slot=parse_bid_name(observation.bid).slot, zone=observation.zone
        )
        await inventory.bids.withdraw_bid(step, observation)
