"""Choose the offers to request now: their order, how many at once, and when to try again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from tpuherd.history.apply_bid_events import quota_key, unfit_key
from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.slot_history import BidRecord, SlotHistory, ZoneStats
from tpuherd.model.slots_and_plan import Ask, Offer, Refusal, RequestKind, Slot
from tpuherd.planner.retry_limits import format_age

StatsByZone = Mapping[tuple[str, str, str], ZoneStats]
PLAIN = ZoneStats()
#: What a user can do about a refusal. Submitting or changing the job retries at once.
ADVICE: Mapping[Refusal, str] = {
    Refusal.QUOTA: " (request more quota, or allow other zones)",
    Refusal.RESERVATION: " (check that the reservation exists and has capacity)",
    Refusal.PERMISSION: " (grant the account roles/tpu.admin, or allow other zones)",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferChoice:
    """What a slot would request now."""

    offers: tuple[Offer, ...] = ()  #: in this order
    wake_at: float = inf  #: when there may be more
    why_not: tuple[str, ...] = ()  #: for each offer that has to wait, the reason
    fatal: str = ""  #: no offer can ever be granted, in a sentence


def choose_offers(
    slot: Slot,
    slot_history: SlotHistory,
    live: Sequence[BidRecord],
    zone_stats: StatsByZone,
    probed: set[object],
    now: float,
) -> OfferChoice:
    """The offers to request next to the live bids, best first.

    `probed`: the zones, types and tiers that a slot is currently trying after a refusal.
    """
    fit = fitting_offers(slot, slot_history)
    if not fit:
        return OfferChoice(
            fatal=slot.no_offer or "; ".join(dict.fromkeys(slot_history.unfit.values()))
        )
    taken = {(bid.offer.zone, bid.offer.rank) for bid in live}
    if all((one.zone, one.rank) in taken for one in fit):
        return OfferChoice()
    closed = closed_zones(zone_stats, now)
    ranks = sorted({one.rank for one in fit})
    since = slot_history.searching_at if slot_history.searching_at is not None else now
    found: list[Offer] = []
    reasons: list[str] = []
    wake = soonest = inf
    for place, rank in enumerate(ranks):
        opens = since + slot.limits.patience_s * place
        # A better rank is waited for if it is bid for, or can be within its patience.
        before = found or soonest < opens or any(bid.offer.rank < rank for bid in live)
        if place and now < opens and before:
            wake = min(wake, opens)
            break
        for offer in sort_offers([one for one in fit if one.rank == rank], zone_stats):
            if (offer.zone, rank) in taken:
                continue
            due, reason = offer_pause(offer, zone_stats, closed, probed, slot_history.freed, now)
            if due > now:
                wake, soonest = min(wake, due), min(soonest, due)
                reasons.append(reason)
                continue
            taken.add((offer.zone, rank))
            found.append(offer)
    return OfferChoice(offers=tuple(found), wake_at=wake, why_not=tuple(reasons))


def fitting_offers(slot: Slot, slot_history: SlotHistory) -> Sequence[Offer]:
    if not slot_history.unfit:
        return slot.offers
    return [
        one for one in slot.offers if unfit_key(one, slot.node_digest) not in slot_history.unfit
    ]


def closed_zones(zone_stats: StatsByZone, now: float) -> Mapping[str, ZoneStats]:
    """Zones where we may not create anything, with the cloud's message."""
    return {
        zone: stats
        for (zone, _, _), stats in zone_stats.items()
        if stats.refusal is Refusal.PERMISSION and now < stats.refused_at + stats.pause_s
    }


def offer_pause(
    offer: Offer,
    zone_stats: StatsByZone,
    closed: Mapping[str, ZoneStats],
    probed: set[object],
    freed: Mapping[str, float],
    now: float,
) -> tuple[float, str]:
    """Until when an offer must wait, and why.

    `freed`: when nodes of the slot's own gave quota back.
    """
    key = zone_stats_key(offer)
    stats = closed.get(offer.zone) or zone_stats.get(key)
    if stats is None or stats.refusal is None:
        return now, ""
    if stats.refusal is Refusal.QUOTA and freed.get(quota_key(offer), 0.0) > stats.refused_at:
        return now, ""
    due = stats.refused_at + stats.pause_s
    if due > now:
        hint = f" ({stats.hint})" if stats.hint else ADVICE.get(stats.refusal, "")
        reason = f"{offer.zone}: {stats.sentence}{hint}"
        return due, f"{reason}; next request in {format_age(due - now)}"
    alone = offer.zone if stats.refusal is Refusal.PERMISSION else key
    if alone in probed and (offer.kind is RequestKind.DIRECT or alone is not key):
        # After a refusal one alone tries, and the others go where it succeeds.
        return now + stats.pause_s + 1, f"{offer.zone}: another slot is trying it"
    return now, ""


def sort_offers(offers: Sequence[Offer], zone_stats: StatsByZone) -> list[Offer]:
    """Sort zones by quick grants and long lives, then by the price of node and data."""

    def key(offer: Offer) -> tuple[int, float, float, float, str]:
        stats = zone_stats.get(zone_stats_key(offer), PLAIN)
        wait = median(stats.waits_s) if stats.waits_s else inf
        life = median(stats.lives_s) if stats.lives_s else 0.0
        cost = (offer.price or 0.0) + (offer.egress or 0.0)
        return stats.refusals, wait, -life, cost, offer.zone

    return sorted(offers, key=key)


def bid_count(choice: OfferChoice, slot: Slot, live: int, held: int, hedge: int | None) -> int:
    """How many to request: one for tools that need an exact name, else as the hedge allows."""
    if slot.exact:
        return 0 if held else 1
    return len(choice.offers) if hedge is None else max(0, max(hedge, 1) - live)


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingAsk:
    """A request waiting for its share of the budget; the lowest turn goes first."""

    turn: tuple[int, float, str, int]
    ask: Ask
    why: str


def admit_requests(
    requests: Sequence[PendingAsk], asks: Sequence[float], per_min: int, now: float
) -> tuple[list[PendingAsk], list[PendingAsk], float]:
    """Those within the budget in fair order, the rest, and when there is room again."""
    sent = sorted(at for at in asks if at > now - 60)
    room = max(0, per_min - len(sent))
    order = sorted(requests, key=lambda one: one.turn)
    late = order[room:]
    if not late:
        return order, [], inf
    wake = sent[0] + 60 if sent else now + 60
    return order[:room], late, wake
