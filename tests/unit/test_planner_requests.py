"""Which slots request where: probing, prices, lifetimes and turns."""

from dataclasses import replace

from tests.unit.planner_scenes import (  # fmt: skip
    NAME,
    NOW,
    actions,
    again,
    bid,
    seen,
)
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.slot_history import History, SlotHistory, ZoneStats
from tpuherd.model.slots_and_plan import (
    Ask,
    DesiredSlots,
    Refusal,
    RequestKind,
)
from tpuherd.planner.plan import build_plan_context
from tpuherd.planner.zone_choice import sort_offers


def test_the_slot_that_waited_longest_asks_first() -> None:
    one, late = (offer("a"),), NOW - 1
    toy = Toy(slot("gpt-0", offers=one), slot("gpt-1", offers=one, desired_since=late))
    toy.now = NOW
    toy.desired = replace(toy.desired, creates_per_min=1)
    for first, second, asks in ((10.0, 100.0, "gpt-1"), (100.0, 10.0, "gpt-0"), (5, None, "gpt-0")):
        seeks = (first, second)
        slots = {
            f"gpt-{one}": SlotHistory(searching_at=None if ago is None else NOW - ago)
            for one, ago in enumerate(seeks)
        }
        toy.history = History(slots=slots)
        assert [ask.slot for ask in actions(again(toy), Ask)] == [asks]


def test_two_slots_probe_once_after_a_refusal() -> None:
    direct = (offer("a", kind=RequestKind.DIRECT),)
    for offers, many in ((direct, 1), ((offer("a"),), 2)):
        toy = Toy(slot("gpt-0", offers=offers), slot("gpt-1", offers=offers))
        toy.refuses = {"a": Refusal.STOCKOUT}
        toy.tick()
        toy.run(until=lambda toy: not any(one.bids for one in toy.history.slots.values()))
        toy.now += 7200
        assert len(actions(again(toy), Ask)) == many


def test_an_unknown_price_counts_as_zero() -> None:
    dear, free, unknown = offer("a", price=0.5), offer("b", price=0.0), offer("c", price=None)
    assert [one.zone for one in sort_offers([dear, unknown, free], {})] == ["b", "c", "a"]


def test_zones_with_known_node_lifetimes_come_before_unknown_ones() -> None:
    lives = {zone_stats_key(offer("b")): ZoneStats(lives_s=(0.5,))}
    assert [one.zone for one in sort_offers([offer("a"), offer("b")], lives)] == ["b", "a"]


def test_only_a_waiting_slot_probes_for_the_others() -> None:
    direct = bid(offer=offer("a", kind=RequestKind.DIRECT))
    for one, tries in [
        (direct, True), (replace(direct, granted_at=1.0), False), (bid(), False),
        (replace(direct, refusal=Refusal.STOCKOUT), False),
        (replace(direct, withdrawn_at=1.0), False),
    ]:  # fmt: skip
        slot_history = SlotHistory(bids={NAME: one})
        desired = DesiredSlots(slots={}, owner="me")
        found = build_plan_context(desired, seen(), History(slots={"gpt-0": slot_history}), NOW)
        assert (("a", "v4-16", "spot") in found.probed) == tries, one
