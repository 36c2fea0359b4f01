"""What bears an owner's name in the cloud, looked at once, and whose it is."""

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
    """One look."""

    bids: BidsApi
    survey: Survey
    owner: str
    owners: frozenset[str]  #: ours, and those that were adopted

    @property
    def own_bids(self) -> Mapping[str, BidObservation]:
        """What bears one of our names."""
        return self.bids_of_owners(self.owners)

    def bids_of_owners(self, owners: frozenset[str]) -> Mapping[str, BidObservation]:
        """What bears one of these names."""
        sights = self.survey.sights
        return {bid: sight for bid, sight in sights.items() if parse_bid_name(bid).owner in owners}

    @property
    def silent_zones(self) -> frozenset[str]:
        """Zones that did not answer: what is there nobody knows."""
        return frozenset(zones()) - self.survey.zones

    def find_orphans(
        self, trails: History, *, of: frozenset[str] | None = None
    ) -> Mapping[str, BidObservation]:
        """Of ours, or of other owners', those of which the store knows nothing."""
        known = {bid for trail in trails.slots.values() for bid in trail.bids}
        there = self.own_bids if of is None else self.bids_of_owners(of)
        return {bid: sight for bid, sight in there.items() if bid not in known}


async def survey_cloud(here: Session) -> CloudInventory:
    """At all zones there are."""
    cloud = await here.cloud()
    bids = BidsApi(cloud, here.clock, here.place.ssh_port, cloud.list_nodes)
    owner = project_access.get_owner_id(here.config_folder)
    return CloudInventory(
        bids=bids,
        survey=await bids.survey_bids(zones()),
        owner=owner,
        owners=project_access.own_owner_ids(here.place),
    )


def parse_bid_name(bid: str) -> BidName:
    """What the name of a bid says; a survey has no others."""
    found = split_bid_name(bid)
    assert found is not None
    return found


def hourly_price(sight: BidObservation) -> float | None:
    """By its card; only what has nodes costs."""
    if not sight.nodes:
        return 0.0
    offer = sight.card.get("offer")
    return read_offer(offer).price if isinstance(offer, Mapping) else None


def state_text(sight: BidObservation) -> str:
    """Its state, in the cloud's words."""
    return sight.state or ", ".join(sorted({node.state for node in sight.nodes})) or "there"


def withdrawal_event(sight: BidObservation, now: float, why: str) -> HistoryEvent:
    """The line by which alone anything is deleted."""
    name = parse_bid_name(sight.bid)
    facts = {"bid": sight.bid, "zone": sight.zone, "why": why}
    return HistoryEvent(at=now, kind="bid.withdrawn", job=name.job, slot=name.slot, facts=facts)


async def withdraw_bids(seen: CloudInventory, sights: Iterable[BidObservation]) -> None:
    """Carry recorded withdrawals out."""
    for sight in sights:
        step = Withdraw(bid=sight.bid, slot=parse_bid_name(sight.bid).slot, zone=sight.zone)
        await seen.bids.withdraw_bid(step, sight)
