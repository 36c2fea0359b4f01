"""What nodes cost: when they are billed, and what for."""

from collections.abc import Iterable, Mapping

from tpuherd.accounting.goodput import BilledSpan, GoodputState, SlotAccount, clip_spans
from tpuherd.model.slot_history import BidRecord, billed_since


def billed_spans(bids: Iterable[BidRecord], now: float) -> list[BilledSpan]:
    """When these nodes were billed, as `bid_cost` counts it."""
    spans = []
    for bid in bids:
        since = billed_since(bid)
        until = bid.lost_at or bid.nodes_deleted_at or now
        if since is not None and since < until:
            spans.append(BilledSpan(start=since, end=until, bid=bid.name, zone=bid.offer.zone,
                                    per_hour=bid.offer.price))  # fmt: skip
    return spans


def is_billed(bid: BidRecord) -> bool:
    over = bid.lost_at is not None or bid.nodes_deleted_at is not None
    return billed_since(bid) is not None and not over


def cost_by_state(account: SlotAccount) -> Mapping[GoodputState, float]:
    """Dollars by what the slot did meanwhile; after its end, by its last state.

    They add up to the cost of all its nodes: several may be billed at the same time.
    """
    costs: dict[GoodputState, float] = {}
    for billed in account.billed:
        rate = (billed.per_hour or 0.0) / 3600
        rest = billed.end - billed.start
        for span in clip_spans(account.spans, billed.start, billed.end):
            costs[span.state] = costs.get(span.state, 0.0) + (span.end - span.start) * rate
            rest -= span.end - span.start
        if rest > 0:
            costs[account.state] = costs.get(account.state, 0.0) + rest * rate
    return costs


def cost_between(spans: Iterable[BilledSpan], start: float, end: float) -> float:
    """Dollars for the part of these spans between two times."""
    return sum(
        max(0.0, min(span.end, end) - max(span.start, start)) / 3600 * (span.per_hour or 0.0)
        for span in spans
    )
