"""Apply events to the record of a bid."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from tpuherd.model.slot_history import FULL, SILENT, BidRecord, SlotHistory, bid_cost
from tpuherd.model.slots_and_plan import HistoryEvent, Offer, Refusal, RequestKind
from tpuherd.targets import split_bid_name

GONE_KEPT = 1000  #: withdrawn generations remembered per slot

SlotEventHandler = Callable[[SlotHistory, HistoryEvent], SlotHistory]


def read_offer(document: Mapping[str, Any]) -> Offer:
    known = {one.name for one in fields(Offer)}
    kept = {name: value for name, value in document.items() if name in known}
    return Offer(**kept | {"kind": RequestKind(kept.get("kind", RequestKind.QUEUED))})


def apply_asked(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    facts = event.facts
    old = slot_history.bids.get(facts["bid"])
    if old is not None:
        return with_bid(slot_history, replace(old, sent_at=event.at, sends=old.sends + 1))
    bid = BidRecord(
        name=facts["bid"],
        slot=event.slot,
        generation=facts["generation"],
        offer=read_offer(facts["offer"]),
        node_digest=facts["node_digest"],
        nodes=facts["nodes"],
        asked_at=event.at,
        sent_at=event.at,
    )
    since = event.at if slot_history.searching_at is None else slot_history.searching_at
    generation = max(slot_history.generation, bid.generation)
    return with_bid(replace(slot_history, generation=generation, searching_at=since), bid)


def apply_adopted(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    facts = event.facts
    known = {one.name for one in fields(BidRecord)} - {"name", "slot", "offer"}
    kept = {name: value for name, value in facts.items() if name in known}
    bid = BidRecord(
        **{"asked_at": event.at, "sent_at": event.at}
        | kept
        | {
            "prepared_on": tuple(kept.get("prepared_on", ())),
            "refusal": Refusal(kept["refusal"]) if kept.get("refusal") else None,
            "adopted": True,
        },
        name=facts["bid"],
        slot=event.slot,
        offer=read_offer(facts["offer"]),
    )
    return with_bid(
        replace(slot_history, generation=max(slot_history.generation, bid.generation)), bid
    )


def apply_withdrawn(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    name, facts = event.facts["bid"], event.facts
    named = split_bid_name(name)
    bid = slot_history.bids.get(name)
    if bid is None and named is not None:
        # One that was gone and has shown up again: only its name and its zone still matter.
        offer = Offer(zone=str(facts.get("zone", "")), type="", runtime="", tier="")
        bid = BidRecord(
            name=name,
            slot=event.slot,
            generation=named.generation,
            offer=offer,
            node_digest="",
            nodes=1,
            asked_at=event.at,
        )
    if bid is None:
        return slot_history
    slot_history = replace(slot_history, generation=max(slot_history.generation, bid.generation))
    why = bid.withdrawn_why or str(facts.get("why", ""))
    many = bid.withdrawals + 1
    return with_bid(
        slot_history, replace(bid, withdrawn_at=event.at, withdrawn_why=why, withdrawals=many)
    )


def apply_gone(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    bid = slot_history.bids.get(event.facts["bid"])
    if bid is None:
        return slot_history
    left = bids_without(slot_history, bid.name)
    memory = (*(one for one in slot_history.gone if one != bid.generation), bid.generation)
    spent = slot_history.spent + bid_cost(bid, event.at)
    slot_history = give_back_quota(slot_history, bid, event.at)
    return replace(slot_history, bids=left, gone=memory[-GONE_KEPT:], spent=spent)


def apply_lost(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    bid = slot_history.bids.get(event.facts["bid"])
    if bid is None:
        return slot_history
    slot_history = give_back_quota(slot_history, bid, event.at)
    return with_bid(slot_history, replace(bid, lost_at=event.at, lost_how=event.facts["cause"]))


def give_back_quota(slot_history: SlotHistory, bid: BidRecord, now: float) -> SlotHistory:
    """Note that a deleted node uses no quota, so its own slot need not wait for it."""
    if bid.granted_at is None:
        return slot_history
    return replace(slot_history, freed={**slot_history.freed, quota_key(bid.offer): now})


def quota_key(offer: Offer) -> str:
    return f"{offer.zone} {offer.type} {offer.tier}"


def apply_refused(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    refusal, sentence = Refusal(event.facts["refusal"]), event.facts["message"]
    bid = slot_history.bids.get(event.facts["bid"])
    if bid is None:
        return slot_history
    if refusal is Refusal.TAKEN:
        # The resource of this name is not known to be ours: forget it, never withdraw it.
        return replace(slot_history, bids=bids_without(slot_history, bid.name))
    slot_history = with_bid(slot_history, replace(bid, refusal=refusal, sentence=sentence))
    if refusal is not Refusal.CONFIGURATION:
        return slot_history
    return replace(
        slot_history, unfit={**slot_history.unfit, unfit_key(bid.offer, bid.node_digest): sentence}
    )


def unfit_key(offer: Offer, node_digest: str) -> str:
    """The key of an offer that was refused for good; another node spec may succeed."""
    return " ".join((offer.zone, offer.type, offer.runtime, offer.tier, offer.kind, node_digest))


def apply_granted(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    if event.facts["bid"] not in slot_history.bids:
        return slot_history
    return replace(bid_setter(granted_at="$at")(slot_history, event), searching_at=None)


def bid_setter(**changes: Any) -> SlotEventHandler:
    """A handler that changes the event's bid; "$at" is the time, "$name" a fact."""

    def change(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
        bid = slot_history.bids.get(event.facts["bid"])
        if bid is None:
            return slot_history
        return with_bid(slot_history, replace(bid, **resolve_values(changes, event)))

    return change


def choose_by_source(hosts: SlotEventHandler, cloud: SlotEventHandler) -> SlotEventHandler:
    """A handler of what either the silence of hosts says of a bid, or the cloud."""

    def apply_one(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
        return (hosts if event.facts.get("code") == SILENT else cloud)(slot_history, event)

    return apply_one


def resolve_values(changes: Mapping[str, Any], event: HistoryEvent) -> dict[str, Any]:
    known = {"at": event.at, **event.facts}
    return {
        name: known[value[1:]] if isinstance(value, str) and value.startswith("$") else value
        for name, value in changes.items()
    }


def bids_without(slot_history: SlotHistory, name: str) -> dict[str, BidRecord]:
    return {other: bid for other, bid in slot_history.bids.items() if other != name}


def with_bid(slot_history: SlotHistory, bid: BidRecord) -> SlotHistory:
    return replace(slot_history, bids={**slot_history.bids, bid.name: bid})


def apply_prepared(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    bid = slot_history.bids.get(event.facts["bid"])
    if bid is None:
        return slot_history
    facts = event.facts
    bid = replace(
        bid,
        prepared=facts["code_digest"],
        prepared_on=tuple(facts["hosts"]),
        prepared_at=event.at,
        unprepared=0,
        missing_inputs=0,
    )
    return with_bid(slot_history, bid)


def apply_uncollected(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    bid = slot_history.bids.get(event.facts["bid"])
    if bid is None:
        return slot_history
    full_at = bid.full_at
    if full_at is None and event.facts.get("code") == FULL:
        full_at = event.at
    bid = replace(bid, uncollected=bid.uncollected + 1, uncollected_at=event.at, full_at=full_at)
    return with_bid(slot_history, bid)


BIDS: Mapping[str, SlotEventHandler] = {
    "bid.requested": apply_asked,
    "bid.adopted": apply_adopted,
    "bid.accepted": bid_setter(answered_at="$at"),
    "bid.refused": apply_refused,
    "bid.granted": apply_granted,
    "bid.ready": bid_setter(ready_at="$at"),
    "bid.unhealthy": choose_by_source(
        bid_setter(silent_at="$at"), bid_setter(unhealthy_at="$at", unhealthy_state="$state")
    ),
    "bid.healthy": choose_by_source(
        bid_setter(silent_at=None), bid_setter(unhealthy_at=None, unhealthy_state="")
    ),
    "bid.idle": bid_setter(idle_at="$at"),
    "bid.used": bid_setter(idle_at=None),
    "bid.notice_received": bid_setter(notice_at="$at"),
    "bid.missing": bid_setter(missed_at="$at"),
    "bid.reappeared": bid_setter(missed_at=None),
    "bid.lost": apply_lost,
    "bid.nodes_deleted": bid_setter(nodes_deleted_at="$at"),
    "bid.withdrawn": apply_withdrawn,
    "bid.deleted": apply_gone,
    "slot.prepared": apply_prepared,
    "slot.collected": bid_setter(collected=True),
    "slot.collect_failed": apply_uncollected,
}
