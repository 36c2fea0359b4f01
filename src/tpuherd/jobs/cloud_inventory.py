"""What bears an owner's name in the cloud, looked at once, and whose it is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tpuherd.catalogue import zones
from tpuherd.cloud.bids_api import Bids
from tpuherd.history.apply_bid_events import read_offer
from tpuherd.jobs.open_project import Desk
from tpuherd.model.observed import Sight
from tpuherd.model.slot_history import Trails
from tpuherd.model.slots_and_plan import Event, Withdraw
from tpuherd.ports import Survey
from tpuherd.settings import project_access
from tpuherd.targets import Slot, slot_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One look."""

    bids: Bids
    survey: Survey
    owner: str
    owners: frozenset[str]  #: ours, and those that were adopted

    @property
    def ours(self) -> Mapping[str, Sight]:
        """What bears one of our names."""
        return self.theirs(self.owners)

    def theirs(self, owners: frozenset[str]) -> Mapping[str, Sight]:
        """What bears one of these names."""
        sights = self.survey.sights
        return {bid: sight for bid, sight in sights.items() if named(bid).owner in owners}

    @property
    def silent(self) -> frozenset[str]:
        """Zones that did not answer: what is there nobody knows."""
        return frozenset(zones()) - self.survey.zones

    def strays(self, trails: Trails, *, of: frozenset[str] | None = None) -> Mapping[str, Sight]:
        """Of ours, or of other owners', those of which the store knows nothing."""
        known = {bid for trail in trails.slots.values() for bid in trail.bids}
        there = self.ours if of is None else self.theirs(of)
        return {bid: sight for bid, sight in there.items() if bid not in known}


async def look(here: Desk) -> Seen:
    """At all zones there are."""
    cloud = await here.cloud()
    bids = Bids(cloud, here.clock, here.place.ssh_port, cloud.survey)
    owner = project_access.owner(here.config)
    return Seen(
        bids=bids,
        survey=await bids.survey(zones()),
        owner=owner,
        owners=project_access.owners(here.place),
    )


def named(bid: str) -> Slot:
    """What the name of a bid says; a survey has no others."""
    found = slot_of(bid)
    assert found is not None
    return found


def per_hour(sight: Sight) -> float | None:
    """By its card; only what has nodes costs."""
    if not sight.nodes:
        return 0.0
    offer = sight.card.get("offer")
    return read_offer(offer).price if isinstance(offer, Mapping) else None


def described(sight: Sight) -> str:
    """Its state, in the cloud's words."""
    return sight.state or ", ".join(sorted({node.state for node in sight.nodes})) or "there"


def withdrawal(sight: Sight, now: float, why: str) -> Event:
    """The line by which alone anything is deleted."""
    name = named(sight.bid)
    facts = {"bid": sight.bid, "zone": sight.zone, "why": why}
    return Event(at=now, kind="bid.withdrawn", job=name.job, slot=name.slot, facts=facts)


async def withdraw(seen: Seen, sights: Iterable[Sight]) -> None:
    """Carry recorded withdrawals out."""
    for sight in sights:
        step = Withdraw(bid=sight.bid, slot=named(sight.bid).slot, zone=sight.zone)
        await seen.bids.withdraw(step, sight)
