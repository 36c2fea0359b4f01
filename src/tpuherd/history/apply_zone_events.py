"""Apply events beyond one slot: zone statistics, recent requests, paused deletions, orphans."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import fmean

from tpuherd.model.slot_history import BidRecord, History, ZoneStats
from tpuherd.model.slots_and_plan import HistoryEvent, Offer, Refusal

KEPT = 20  #: latest waits and lifetimes kept per zone, type and tier
PAUSE_S_MIN, PAUSE_S_MAX = 15.0, 600.0
PAUSE_LESS_S = 60.0  #: how much a grant shortens the pause
#: Refusals for other reasons than capacity: how long until the next try.
WAITS_S: Mapping[Refusal, float] = {
    Refusal.QUOTA: 300.0,
    Refusal.RESERVATION: 300.0,
    Refusal.PERMISSION: 300.0,
}
#: Refusals that say nothing about other requests in the zone.
OF_ONE_BID = frozenset((Refusal.TAKEN, Refusal.CONFIGURATION, Refusal.NAME_IN_USE))

FOUND, GONE = "orphan.found", "orphan.gone"
ORPHAN_KINDS = (FOUND, GONE)

StatsHandler = Callable[[History, HistoryEvent], History]


def zone_stats_key(offer: Offer) -> tuple[str, str, str]:
    return offer.zone, offer.type, offer.tier


def find_bid(history: History, event: HistoryEvent) -> BidRecord | None:
    slot_history = history.slots.get(event.slot)
    return slot_history.bids.get(event.facts["bid"]) if slot_history else None


def with_zone_stats(history: History, key: tuple[str, str, str], stats: ZoneStats) -> History:
    return replace(history, zone_stats={**history.zone_stats, key: stats})


def count_ask(history: History, event: HistoryEvent) -> History:
    kept = tuple(at for at in history.asks if at > event.at - 60)
    return replace(history, asks=(*kept, event.at))


def learn_refusal(history: History, event: HistoryEvent) -> History:
    bid = find_bid(history, event)
    refusal = Refusal(event.facts["refusal"])
    if bid is None or refusal in OF_ONE_BID:
        return history
    key = zone_stats_key(bid.offer)
    stats = history.zone_stats.get(key, ZoneStats())
    if bid.refusal is not None:
        return history  # a repeated event
    stats = replace(
        stats,
        refusals=stats.refusals + (refusal is Refusal.STOCKOUT),
        refused_at=event.at,
        refusal=refusal,
        sentence=event.facts["message"],
        hint=str(event.facts.get("hint") or ""),
        pause_s=WAITS_S.get(refusal, next_pause(stats, bid)),
    )
    return with_zone_stats(history, key, stats)


def learn_vain_wait(history: History, event: HistoryEvent) -> History:
    """A request given up before any was granted: other zones come first the next time."""
    bid = find_bid(history, event)
    if bid is None or history.slots[event.slot].searching_at is None:
        return history
    if (bid.granted_at, bid.refusal, bid.withdrawn_at) != (None, None, None):
        return history
    key = zone_stats_key(bid.offer)
    stats = history.zone_stats.get(key, ZoneStats())
    return with_zone_stats(history, key, replace(stats, refusals=stats.refusals + 1))


def next_pause(stats: ZoneStats, bid: BidRecord) -> float:
    """Double the last pause, but only once for all requests sent before it ended."""
    last = 0.0 if stats.refusal in WAITS_S else stats.pause_s
    if last and bid.sent_at < stats.refused_at:
        return last
    return min(PAUSE_S_MAX, max(PAUSE_S_MIN, last * 2))


def learn_grant(history: History, event: HistoryEvent) -> History:
    bid = find_bid(history, event)
    if bid is None or bid.granted_at is not None:
        return history
    key = zone_stats_key(bid.offer)
    stats = history.zone_stats.get(key, ZoneStats())
    stats = replace(
        stats,
        refusals=0,
        refusal=None,
        sentence="",
        hint="",
        grants=stats.grants + 1,
        pause_s=max(0.0, min(stats.pause_s, PAUSE_S_MAX) - PAUSE_LESS_S),
    )
    return with_zone_stats(history, key, stats)


def learn_wait(history: History, event: HistoryEvent) -> History:
    bid = find_bid(history, event)
    if bid is None or bid.ready_at is not None:
        return history
    key = zone_stats_key(bid.offer)
    stats = history.zone_stats.get(key, ZoneStats())
    waits = (*stats.waits_s, event.at - bid.asked_at)[-KEPT:]
    return with_zone_stats(history, key, replace(stats, waits_s=waits))


def learn_lifetime(history: History, event: HistoryEvent) -> History:
    """A node's lifetime ends with its notice, which may be all we see of its loss."""
    bid = find_bid(history, event)
    if bid is None or bid.ready_at is None:
        return history
    if bid.notice_at is not None or bid.lost_at is not None:
        return history
    key = zone_stats_key(bid.offer)
    stats = history.zone_stats.get(key, ZoneStats())
    lives = (*stats.lives_s, event.at - bid.ready_at)[-KEPT:]
    return with_zone_stats(history, key, replace(stats, lives_s=lives))


def lifetime_env(history: History, slot: str, bid: str) -> Mapping[str, str]:
    """The typical node lifetime there as a variable for scripts, if known."""
    slot_history = history.slots.get(slot)
    mine = slot_history.bids.get(bid) if slot_history else None
    stats = history.zone_stats.get(zone_stats_key(mine.offer)) if mine else None
    return {"HERD_LIFE_S": f"{fmean(stats.lives_s):.0f}"} if stats and stats.lives_s else {}


def forget_refusals(history: History, event: HistoryEvent) -> History:
    """Try again what was refused, since the user has changed or resumed the job."""
    zone_stats = {
        key: replace(stats, refusal=None, pause_s=0.0, sentence="", hint="")
        if stats.refusal in WAITS_S
        else stats
        for key, stats in history.zone_stats.items()
    }
    return replace(history, zone_stats=zone_stats)


def quarantine_node(history: History, event: HistoryEvent) -> History:
    return replace(history, bad_nodes={**history.bad_nodes, event.facts["node"]: event.at})


def release_quarantine(history: History, event: HistoryEvent) -> History:
    if event.facts["bid"] not in history.bad_nodes:
        return history
    left = {name: at for name, at in history.bad_nodes.items() if name != event.facts["bid"]}
    return replace(history, bad_nodes=left)


#: Applied before the slot's own history changes, so they see the bid as it was.
LEARNS: Mapping[str, StatsHandler] = {
    "job.submitted": forget_refusals,
    "job.changed": forget_refusals,
    "job.resumed": forget_refusals,
    "bid.requested": count_ask,
    "bid.refused": learn_refusal,
    "bid.granted": learn_grant,
    "bid.ready": learn_wait,
    "bid.withdrawn": learn_vain_wait,
    "bid.notice_received": learn_lifetime,
    "bid.lost": learn_lifetime,
    "bid.deleted": release_quarantine,
    "node.quarantined": quarantine_node,
    "engine.started": lambda history, event: replace(history, started_at=event.at),
    "engine.deletions_paused": lambda history, event: replace(history, frozen_at=event.at),
    "engine.deletions_resumed": lambda history, event: replace(history, frozen_at=None),
}


def current_orphans(events: Iterable[HistoryEvent]) -> dict[str, str]:
    """Return those that were found and are not gone, by name, each with its zone."""
    found: dict[str, str] = {}
    for event in events:
        name = str(event.facts.get("bid"))
        if event.kind == FOUND:
            found[name] = str(event.facts.get("zone"))
        elif event.kind == GONE:
            found.pop(name, None)
    return found
