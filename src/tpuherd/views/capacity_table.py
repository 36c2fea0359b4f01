"""What the log shows about capacity: how each zone answered and how long its nodes lived."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.format_text import NOTHING, format_span, format_table

KINDS = ("bid.requested", "bid.adopted", "bid.refused", "bid.granted", "bid.ready",
         "bid.notice_received", "bid.lost")  # fmt: skip
HEAD = ("ZONE", "TYPE", "TIER", "REQUESTED", "REFUSED", "GRANTED", "MEDIAN WAIT", "MEDIAN LIFE",
        "LAST REFUSAL")  # fmt: skip

ZoneKey = tuple[str, str, str]
K = TypeVar("K")


@dataclass(slots=True)
class ZoneTally:
    asked: int = 0
    refused: int = 0
    granted: int = 0
    waits_s: list[float] = field(default_factory=list)
    lives_s: list[float] = field(default_factory=list)
    refusal: str = ""
    sentence: str = ""
    refused_at: float | None = None


@dataclass(slots=True)
class OpenBid:
    asked_at: float
    counted_kinds: set[str] = field(default_factory=set)
    ready_at: float | None = None


def capacity_rows(events: Iterable[HistoryEvent], now: float) -> list[dict[str, Any]]:
    """A row for each zone, type and tier ever requested."""
    tallies = tally_bids(events, zone_key)
    return [capacity_row(key, tallies[key], now) for key in sorted(tallies)]


def capacity_hours(events: Iterable[HistoryEvent]) -> list[dict[str, Any]]:
    """The same by the hour of the day (UTC) at which nodes were requested."""
    tallies = tally_bids(events, lambda event: (*zone_key(event), int(event.at // 3600 % 24)))
    return [
        {
            "zone": zone,
            "type": type,
            "tier": tier,
            "hour": hour,
            "requested": tally.asked,
            "refused": tally.refused,
            "granted": tally.granted,
            "wait_s": middle_value(tally.waits_s),
            "life_s": middle_value(tally.lives_s),
        }
        for (zone, type, tier, hour), tally in sorted(tallies.items(), key=lambda one: one[0])
    ]


def zone_key(event: HistoryEvent) -> ZoneKey:
    """Where an event requests a node, and of what kind."""
    offer = event.facts.get("offer") or {}
    return str(offer.get("zone")), str(offer.get("type")), str(offer.get("tier"))


def tally_bids(
    events: Iterable[HistoryEvent], key_of: Callable[[HistoryEvent], K]
) -> dict[K, ZoneTally]:
    """Count what became of bids, by a key of the event that requested them."""
    bids: dict[str, tuple[OpenBid, ZoneTally]] = {}
    tallies: dict[K, ZoneTally] = {}
    for event in events:
        name = str(event.facts.get("bid", ""))
        if event.kind in {"bid.requested", "bid.adopted"} and name not in bids:
            tally = tallies.setdefault(key_of(event), ZoneTally())
            tally.asked += event.kind == "bid.requested"
            bids[name] = OpenBid(asked_at=event.at), tally
        elif name in bids and event.kind not in bids[name][0].counted_kinds:
            bid, tally = bids[name]
            bid.counted_kinds.add(event.kind)
            count_event(tally, bid, event)
    return tallies


def count_event(tally: ZoneTally, bid: OpenBid, event: HistoryEvent) -> None:
    match event.kind:
        case "bid.refused":
            tally.refused += 1
            tally.refused_at = event.at
            tally.refusal = str(event.facts.get("refusal", ""))
            tally.sentence = str(event.facts.get("message", ""))
        case "bid.granted":
            tally.granted += 1
        case "bid.ready":
            bid.ready_at = event.at
            tally.waits_s.append(max(0.0, event.at - bid.asked_at))
        case "bid.notice_received" | "bid.lost" if bid.ready_at is not None:
            tally.lives_s.append(max(0.0, event.at - bid.ready_at))
            bid.ready_at = None  # count one loss only


def capacity_row(key: ZoneKey, tally: ZoneTally, now: float) -> dict[str, Any]:
    zone, type, tier = key
    return {
        "zone": zone,
        "type": type,
        "tier": tier,
        "requested": tally.asked,
        "refused": tally.refused,
        "granted": tally.granted,
        "wait_s": middle_value(tally.waits_s),
        "life_s": middle_value(tally.lives_s),
        "refusal": tally.refusal,
        "message": tally.sentence,
        "refused_s_ago": None if tally.refused_at is None else now - tally.refused_at,
    }


def middle_value(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def capacity_text(
    rows: Sequence[Mapping[str, Any]], *, colour: bool = False, width: int | None = None
) -> str:
    """`herd types --zones`"""
    if not rows:
        return "No node has been requested yet."
    cells = [
        (
            one["zone"],
            one["type"],
            one["tier"],
            str(one["requested"]),
            str(one["refused"]),
            str(one["granted"]),
            NOTHING if one["wait_s"] is None else format_span(one["wait_s"]),
            NOTHING if one["life_s"] is None else format_span(one["life_s"]),
            last_refusal(one),
        )
        for one in rows
    ]
    return format_table([HEAD, *cells], right=range(3, 8), colour=colour, width=width)


def last_refusal(one: Mapping[str, Any]) -> str:
    if one["refused_s_ago"] is None:
        return NOTHING
    return f"{format_span(one['refused_s_ago'])} ago: {one['message'] or one['refusal']}"
