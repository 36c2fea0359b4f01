"""How events change what is remembered of a bid."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from tpuherd.model.slot_history import Bid, Trail, cost
from tpuherd.model.slots_and_plan import Event, Kind, Offer, Refusal
from tpuherd.targets import slot_of

GONE_KEPT = 1000  #: so many withdrawn generations of a slot are known again when they show up

Fold = Callable[[Trail, Event], Trail]


def read_offer(document: Mapping[str, Any]) -> Offer:
    """An offer as it was written down."""
    known = {one.name for one in fields(Offer)}
    kept = {name: value for name, value in document.items() if name in known}
    return Offer(**kept | {"kind": Kind(kept.get("kind", Kind.QUEUED))})


def asked(trail: Trail, event: Event) -> Trail:
    facts = event.facts
    old = trail.bids.get(facts["bid"])
    if old is not None:
        return with_bid(trail, replace(old, sent_at=event.at, sends=old.sends + 1))
    bid = Bid(
        name=facts["bid"],
        slot=event.slot,
        generation=facts["generation"],
        offer=read_offer(facts["offer"]),
        node_digest=facts["node_digest"],
        nodes=facts["nodes"],
        asked_at=event.at,
        sent_at=event.at,
    )
    since = event.at if trail.searching_at is None else trail.searching_at
    generation = max(trail.generation, bid.generation)
    return with_bid(replace(trail, generation=generation, searching_at=since), bid)


def adopted(trail: Trail, event: Event) -> Trail:
    facts = event.facts
    known = {one.name for one in fields(Bid)} - {"name", "slot", "offer"}
    kept = {name: value for name, value in facts.items() if name in known}
    bid = Bid(
        **{"asked_at": event.at, "sent_at": event.at}
        | kept
        | {
            "prepared_on": tuple(kept.get("prepared_on", ())),
            "refusal": Refusal(kept["refusal"]) if kept.get("refusal") else None,
        },
        name=facts["bid"],
        slot=event.slot,
        offer=read_offer(facts["offer"]),
    )
    return with_bid(replace(trail, generation=max(trail.generation, bid.generation)), bid)


def withdrawn(trail: Trail, event: Event) -> Trail:
    name, facts = event.facts["bid"], event.facts
    named = slot_of(name)
    bid = trail.bids.get(name)
    if bid is None and named is not None:
        # One that was gone and has shown up again: only its name and its zone still matter.
        offer = Offer(zone=str(facts.get("zone", "")), type="", runtime="", tier="")
        bid = Bid(
            name=name,
            slot=event.slot,
            generation=named.generation,
            offer=offer,
            node_digest="",
            nodes=1,
            asked_at=event.at,
        )
    if bid is None:
        return trail
    trail = replace(trail, generation=max(trail.generation, bid.generation))
    why = bid.withdrawn_why or str(facts.get("why", ""))
    many = bid.withdrawals + 1
    return with_bid(trail, replace(bid, withdrawn_at=event.at, withdrawn_why=why, withdrawals=many))


def gone(trail: Trail, event: Event) -> Trail:
    bid = trail.bids.get(event.facts["bid"])
    if bid is None:
        return trail
    left = without(trail, bid.name)
    memory = (*(one for one in trail.gone if one != bid.generation), bid.generation)
    spent = trail.spent + cost(bid, event.at)
    trail = give_back_quota(trail, bid, event.at)
    return replace(trail, bids=left, gone=memory[-GONE_KEPT:], spent=spent)


def lost(trail: Trail, event: Event) -> Trail:
    bid = trail.bids.get(event.facts["bid"])
    if bid is None:
        return trail
    trail = give_back_quota(trail, bid, event.at)
    return with_bid(trail, replace(bid, lost_at=event.at, lost_how=event.facts["how"]))


def give_back_quota(trail: Trail, bid: Bid, now: float) -> Trail:
    """A node that is gone uses no quota: its own slot need not wait until others were refused."""
    if bid.granted_at is None:
        return trail
    return replace(trail, freed={**trail.freed, quota_key(bid.offer): now})


def quota_key(offer: Offer) -> str:
    """What shares one quota."""
    return f"{offer.zone} {offer.type} {offer.tier}"


def refused(trail: Trail, event: Event) -> Trail:
    refusal, sentence = Refusal(event.facts["refusal"]), event.facts["sentence"]
    bid = trail.bids.get(event.facts["bid"])
    if bid is None:
        return trail
    if refusal is Refusal.TAKEN:
        # What bears the name is not known to be ours: it is forgotten, and never withdrawn.
        return replace(trail, bids=without(trail, bid.name))
    trail = with_bid(trail, replace(bid, refusal=refusal, sentence=sentence))
    if refusal is not Refusal.CONFIGURATION:
        return trail
    return replace(trail, unfit={**trail.unfit, unfit_key(bid.offer, bid.node_digest): sentence})


def unfit_key(offer: Offer, node_digest: str) -> str:
    """An offer as it was refused for good: another wish of it may do."""
    return " ".join((offer.zone, offer.type, offer.runtime, offer.tier, offer.kind, node_digest))


def granted(trail: Trail, event: Event) -> Trail:
    if event.facts["bid"] not in trail.bids:
        return trail
    return replace(of_bid(granted_at="$at")(trail, event), searching_at=None)


def of_bid(**changes: Any) -> Fold:
    """A change of the bid that the event names; "$at" is the time, "$name" a fact."""

    def change(trail: Trail, event: Event) -> Trail:
        bid = trail.bids.get(event.facts["bid"])
        if bid is None:
            return trail
        return with_bid(trail, replace(bid, **meant(changes, event)))

    return change


def meant(changes: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """The values that stand for themselves, for the time or for a fact of the event."""
    known = {"at": event.at, **event.facts}
    return {
        name: known[value[1:]] if isinstance(value, str) and value else value
        for name, value in changes.items()
    }


def without(trail: Trail, name: str) -> dict[str, Bid]:
    """All bids but this one."""
    return {other: bid for other, bid in trail.bids.items() if other != name}


def with_bid(trail: Trail, bid: Bid) -> Trail:
    return replace(trail, bids={**trail.bids, bid.name: bid})


def prepared(trail: Trail, event: Event) -> Trail:
    bid = trail.bids.get(event.facts["bid"])
    if bid is None:
        return trail
    facts = event.facts
    bid = replace(
        bid,
        prepared=facts["code_digest"],
        prepared_on=tuple(facts["on"]),
        prepared_at=event.at,
        unprepared=0,
        lacking=0,
    )
    return with_bid(trail, bid)


def uncollected(trail: Trail, event: Event) -> Trail:
    bid = trail.bids.get(event.facts["bid"])
    if bid is None:
        return trail
    return with_bid(trail, replace(bid, uncollected=bid.uncollected + 1, uncollected_at=event.at))


BIDS: Mapping[str, Fold] = {
    "bid.asked": asked,
    "bid.adopted": adopted,
    "bid.answered": of_bid(answered_at="$at"),
    "bid.refused": refused,
    "bid.granted": granted,
    "bid.ready": of_bid(ready_at="$at"),
    "bid.sick": of_bid(sick_at="$at", sick_how="$state"),
    "bid.well": of_bid(sick_at=None, sick_how=""),
    "bid.noticed": of_bid(noticed_at="$at"),
    "bid.missed": of_bid(missed_at="$at"),
    "bid.seen": of_bid(missed_at=None),
    "bid.lost": lost,
    "bid.freed": of_bid(freed_at="$at"),
    "bid.withdrawn": withdrawn,
    "bid.gone": gone,
    "slot.prepared": prepared,
    "slot.collected": of_bid(collected=True),
    "slot.uncollected": uncollected,
}
