"""Where bids are made, in which order and how often: offers, pauses, ranks, patience, budgets."""

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest

from tests.unit import planner_scenes
from tests.unit.toy_cloud import offer, slot
from tpuherd.history.apply_bid_events import unfit_key
from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.slot_history import BidRecord, SlotHistory, ZoneStats
from tpuherd.model.slots_and_plan import Ask, Limits, Offer, Refusal, RequestKind
from tpuherd.planner.zone_choice import (
    ADVICE,
    PendingAsk,
    admit_requests,
    bid_count,
    choose_offers,
    sort_offers,
)

NOW = 1000.0


def bid(one: Offer, **changes: Any) -> BidRecord:
    name = f"gpt-0-g1-{one.zone}"
    return planner_scenes.bid(name=name, offer=one, asked_at=NOW - 100, sent_at=0.0, **changes)


def zones(
    *offers: Offer,
    live: tuple[BidRecord, ...] = (),
    slot_history: SlotHistory | None = None,
    zone_stats: dict[tuple[str, str, str], ZoneStats] | None = None,
    probed: set[object] | None = None,
) -> list[str]:
    wanted_slot = slot(offers=offers, limits=Limits(patience_s=600))
    found = choose_offers(
        wanted_slot, slot_history or SlotHistory(), live, zone_stats or {}, probed or set(), NOW
    )
    return [one.zone for one in found.offers]


def test_one_bid_per_zone() -> None:
    assert zones(offer("a"), offer("b"), offer("c")) == ["a", "b", "c"]
    assert zones(offer("a"), offer("a", runtime="q"), offer("b")) == ["a", "b"]
    assert zones(offer("a"), offer("b"), live=(bid(offer("a")),)) == ["b"]


def test_zones_are_ordered_by_rank_refusals_wait_lifetime_and_price() -> None:
    offers = [offer("d"), offer("c"), offer("b"), offer("a")]

    def order(**zone_stats: ZoneStats) -> str:
        learnt = {zone_stats_key(offer(zone)): one for zone, one in zone_stats.items()}
        return "".join(one.zone for one in sort_offers(offers, learnt))

    assert order() == "abcd"
    assert order(a=ZoneStats(refusals=1)) == "bcda"
    assert order(d=ZoneStats(waits_s=(50.0, 10.0, 90.0))) == "dabc"
    assert order(d=ZoneStats(waits_s=(50.0,)), c=ZoneStats(waits_s=(40.0,))) == "cdab"
    lives = {"d": ZoneStats(lives_s=(9.0,)), "c": ZoneStats(lives_s=(5.0, 7.0, 99.0))}
    assert order(**lives) == "dcab"
    assert order(a=ZoneStats(refusals=1, waits_s=(1.0,)), d=ZoneStats(waits_s=(9.0,))) == "dbca"
    offers[0] = offer("d", price=0.5)
    assert order() == "dabc"
    assert zones(offer("a", rank=1), offer("b")) == ["b"]


@pytest.mark.parametrize("refusal", [Refusal.STOCKOUT, Refusal.RATE, Refusal.QUOTA])
def test_a_pause_is_kept_to_the_second(refusal: Refusal) -> None:
    for left, free in ((1.0, False), (0.0, True), (-1.0, True)):
        season = ZoneStats(
            refusal=refusal, refused_at=NOW - 100, pause_s=100 + left, sentence="full"
        )
        wanted_slot = slot(offers=(offer("a"),))
        found = choose_offers(
            wanted_slot, SlotHistory(), [], {zone_stats_key(offer("a")): season}, set(), NOW
        )
        assert bool(found.offers) == free
        assert found.wake_at == (inf if free else NOW + left)
        told = f"a: full{ADVICE.get(refusal, '')}; next request in less than a minute"
        assert found.why_not == (() if free else (told,))


def test_a_grant_ends_the_pause() -> None:
    season = ZoneStats(refused_at=NOW, pause_s=100)
    assert zones(offer("a"), zone_stats={zone_stats_key(offer("a")): season}) == ["a"]


def test_without_permission_all_types_wait() -> None:
    denied = ZoneStats(
        refusal=Refusal.PERMISSION, refused_at=NOW - 10, pause_s=86400, sentence="ask"
    )
    zone_stats = {zone_stats_key(offer("a", type="other")): denied}
    assert zones(offer("a"), offer("b"), zone_stats=zone_stats) == ["b"]
    wanted_slot = slot(offers=(offer("a"),))
    found = choose_offers(wanted_slot, SlotHistory(), [], zone_stats, set(), NOW)
    assert (found.wake_at, found.why_not) == (
        NOW - 10 + 86400, (f"a: ask{ADVICE[Refusal.PERMISSION]}; next request in 23 h",),
    )  # fmt: skip
    old = {key: replace(one, refused_at=NOW - 86400) for key, one in zone_stats.items()}
    assert zones(offer("a"), zone_stats=old) == ["a"]
    full = {key: replace(one, refusal=Refusal.STOCKOUT) for key, one in zone_stats.items()}
    assert zones(offer("a"), zone_stats=full) == ["a"]  # of another type there may be some


def test_after_a_refusal_one_slot_probes_a_direct_offer() -> None:
    direct = offer("a", kind=RequestKind.DIRECT)
    season = ZoneStats(refusal=Refusal.STOCKOUT, refused_at=NOW - 100, pause_s=50, sentence="full")
    zone_stats = {zone_stats_key(direct): season}
    probed: set[object] = {zone_stats_key(direct)}
    assert zones(direct, zone_stats=zone_stats) == ["a"]
    assert zones(direct, zone_stats=zone_stats, probed=probed) == []
    assert zones(direct, probed=probed) == ["a"]
    assert zones(offer("a"), zone_stats=zone_stats, probed=probed) == ["a"]
    found = choose_offers(slot(offers=(direct,)), SlotHistory(), [], zone_stats, probed, NOW)
    assert found.wake_at == NOW + 51
    assert found.why_not == ("a: another slot is trying it",)


def test_an_unsuitable_offer_is_never_asked_again() -> None:
    unfit = {unfit_key(offer("a"), "n"): "no such runtime"}
    assert zones(offer("a"), offer("b"), slot_history=SlotHistory(unfit=unfit)) == ["b"]
    for wanted_slot, fatal in (
        (slot(offers=(offer("a"),)), "no such runtime"),
        (slot(offers=(offer("a"),), node_digest="m"), ""),
        (slot(offers=(), no_offer="no grant"), "no grant"),
        (slot(offers=()), "no such runtime"),
    ):
        assert (
            choose_offers(wanted_slot, SlotHistory(unfit=unfit), [], {}, set(), NOW).fatal == fatal
        )


def test_a_worse_rank_opens_when_patience_is_over() -> None:
    good, poor, worst = offer("a"), offer("b", rank=3), offer("c", rank=7)
    live = (bid(good),)
    for waited, opened in ((599, []), (600, ["b"]), (1199, ["b"]), (1200, ["b", "c"])):
        slot_history = SlotHistory(searching_at=NOW - waited)
        wanted_slot = slot(offers=(good, poor, worst))
        found = choose_offers(wanted_slot, slot_history, live, {}, set(), NOW)
        assert [one.zone for one in found.offers] == opened, waited
        assert (found.wake_at < inf) == (waited < 1200)
    # The same zone may be bid for once a rank.
    slot_history = SlotHistory(searching_at=NOW - 600)
    assert zones(good, offer("a", rank=1), live=live, slot_history=slot_history) == ["a"]
    taken = (*live, bid(offer("a", rank=1)))
    assert zones(good, offer("a", rank=1), live=taken, slot_history=slot_history) == []


def test_a_worse_rank_opens_at_once_if_no_better_one_is_possible_in_time() -> None:
    for left, opened in ((599.0, []), (601.0, ["b"])):
        season = ZoneStats(refusal=Refusal.QUOTA, refused_at=NOW, pause_s=left, sentence="full")
        found = zones(
            offer("a"), offer("b", rank=1), zone_stats={zone_stats_key(offer("a")): season}
        )
        assert found == opened
    unfit = {unfit_key(offer("a"), "n"): "no"}
    assert zones(offer("a"), offer("b", rank=1), slot_history=SlotHistory(unfit=unfit)) == ["b"]


def test_how_many_bids_at_once() -> None:
    three = choose_offers(slot(), SlotHistory(), [], {}, set(), NOW)
    assert bid_count(three, slot(), 0, 0, None) == 3
    for hedge, live in product(range(5), range(5)):
        assert bid_count(three, slot(), live, 0, hedge) == max(0, max(hedge, 1) - live)
    assert bid_count(three, slot(exact=True), 0, 0, None) == 1
    assert bid_count(three, slot(exact=True), 0, 1, None) == 0


def request(turn: int, name: str) -> PendingAsk:
    ask = Ask(bid=name, slot=name, generation=1, offer=offer("a"), nodes=1, node_digest="n")
    return PendingAsk(turn=(turn, 0.0, name, 1), ask=ask, why="w")


def test_the_budget_per_minute() -> None:
    requests = [request(turn, name) for turn, name in ((2, "c"), (0, "a"), (1, "b"))]
    for sent in range(6):
        asks = [NOW - 30 - one for one in range(sent)]
        now, later, wake = admit_requests(requests, asks, 4, NOW)
        room = min(3, max(0, 4 - sent))
        assert [one.ask.slot for one in now + later] == ["a", "b", "c"]
        assert len(now) == room
        assert wake == (inf if room == 3 else asks[-1] + 60)
    assert len(admit_requests(requests, [NOW - 60] * 9, 3, NOW)[0]) == 3
    assert admit_requests(requests, [], 2, NOW)[2] == NOW + 60


def test_only_a_better_rank_holds_a_worse_one_back() -> None:
    good, poor, same = offer("a"), offer("b", rank=1), offer("c", rank=1)
    for left, opened in ((599.0, []), (600.0, ["c"])):
        shut = ZoneStats(refusal=Refusal.QUOTA, refused_at=NOW, pause_s=left, sentence="full")
        found = zones(good, poor, same, live=(bid(poor),), zone_stats={zone_stats_key(good): shut})
        assert found == opened


def test_when_a_pause_ends_one_slot_probes() -> None:
    direct = offer("a", kind=RequestKind.DIRECT)
    season = ZoneStats(refusal=Refusal.STOCKOUT, refused_at=NOW - 60, pause_s=60.0, sentence="no")
    for probed, found in ((False, ["a"]), (True, [])):
        tries: set[object] = {zone_stats_key(direct)} if probed else set()
        assert zones(direct, zone_stats={zone_stats_key(direct): season}, probed=tries) == found
