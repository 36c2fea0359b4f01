"""What a bid is to its slot, for all that may be known of it: each role, if and only if."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

from tests.unit.planner_scenes import NAME, NOW, bid, host, seen, sight
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history.apply_event import apply_event
from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.observed import NodeState
from tpuherd.model.slot_history import BidRecord, History, SlotHistory, ZoneStats
from tpuherd.model.slots_and_plan import (
    DesiredSlots,
    Goal,
    HistoryEvent,
    Limits,
    Refusal,
    Slot,
    Withdraw,
)
from tpuherd.planner.bid_status import (
    SILENT_S,
    SPARE_S_MAX,
    UNHEALTHY_S_MAX,
    BidStatus,
    NodeNeed,
    host_fingerprint,
)
from tpuherd.planner.bidding import AGAIN_S, apply_bid_table, assign_roles
from tpuherd.planner.policy import BIDS, BidAction, BidPhase, Role
from tpuherd.planner.slot_input import PlanContext, SlotContext

PATIENCE = 300.0
WANTED_SLOT = slot(limits=Limits(patience_s=PATIENCE))
FACTS = ("withdrawn", "refused", "lost", "noticed", "outdated", "granted", "worn")


def case(wanted_slot: Slot, need: NodeNeed, *bids: BidRecord) -> SlotContext:
    """The bids of one slot, before their roles are known."""
    world = PlanContext(
        desired=DesiredSlots(slots={}, owner="me"), observed=seen(), history=History(), now=NOW,
        sure=True, frozen="", unknown={}, probed=set(),
    )  # fmt: skip
    both = (host(0), host(1))
    bid_statuses = [
        BidStatus(
            bid=one,
            stage=BidPhase.READY,
            observation=sight(NodeState.READY),
            hosts=both,
            whole=True,
        )
        for one in bids
    ]
    slot_history = SlotHistory(bids={one.name: one for one in bids})
    return SlotContext(
        world=world,
        slot=wanted_slot,
        slot_history=slot_history,
        now=NOW,
        need=need,
        bid_statuses=bid_statuses,
    )


def known(facts: frozenset[str], asked_ago: float) -> BidRecord:
    """A bid of which so much is known."""
    changes: dict[str, Any] = {
        "withdrawn": {"withdrawn_at": NOW - 1, "withdrawn_why": "so"},
        "refused": {"refusal": Refusal.STOCKOUT, "sentence": "no"},
        "lost": {"lost_at": NOW - 1, "lost_how": "preempted"},
        "noticed": {"notice_at": NOW - 1},
        "outdated": {"node_digest": "another"},
        "granted": {"granted_at": NOW - 5, "ready_at": NOW - 4},
        "worn": {"unhealthy_at": NOW - UNHEALTHY_S_MAX},
    }
    found = bid(asked_at=NOW - asked_ago)
    for fact in facts:
        found = replace(found, **changes[fact])
    return found


def space() -> Iterator[tuple[frozenset[str], NodeNeed, bool, int, float]]:
    """All that may be known of one bid, what its slot wants, exact or not, offers, its age."""
    for chosen in product((False, True), repeat=len(FACTS)):
        facts = frozenset(name for name, there in zip(FACTS, chosen, strict=True) if there)
        for exact, offers in product((False, True), (1, 2, 3)):
            for need, age in product(NodeNeed, (PATIENCE - 1, PATIENCE)):
                yield facts, need, exact, offers, age


def test_each_role_of_a_single_bid_if_and_only_if() -> None:
    for facts, need, exact, offers, age in space():
        wanted_slot = replace(WANTED_SLOT, exact=exact, offers=tuple(map(offer, "abc"[:offers])))
        context = case(wanted_slot, need, known(facts, age))
        assign_roles(context)
        role = context.bid_statuses[0].role
        gone = facts & {"refused", "lost", "noticed"}
        free = need is not NodeNeed.NONE and "withdrawn" not in facts
        old = need is NodeNeed.SEEK and "outdated" in facts
        tired = exact and offers > 1 and age >= PATIENCE
        unhealthy = need is NodeNeed.SEEK and "worn" in facts
        held = "granted" in facts
        fresh = free and not gone and not old
        assert {
            Role.WITHDRAWN: "withdrawn" in facts,
            Role.UNWANTED: "withdrawn" not in facts and need is NodeNeed.NONE,
            Role.DEAD: (free and bool(gone or (exact and old) or (tired and not held and not old)))
            or (fresh and held and exact and unhealthy),
            Role.OUTDATED: free and not gone and old and not exact,
            Role.CANDIDATE: fresh and not held and not tired and need is NodeNeed.SEEK,
            Role.SURPLUS: fresh and not held and not tired and need is NodeNeed.HOLD,
            Role.UNHEALTHY: fresh and held and unhealthy and not exact,
            Role.INCUMBENT: fresh and held and not unhealthy,
        }[role], (sorted(facts), need, exact, offers, age, role)


def test_a_candidate_beside_an_incumbent_is_surplus() -> None:
    held, waits = known(frozenset({"granted"}), 9.0), bid(name="gpt-0-g2-me", generation=2)
    for need in (NodeNeed.SEEK, NodeNeed.HOLD):
        for bids in ((held, waits), (waits, held)):
            context = case(WANTED_SLOT, need, *bids)
            assign_roles(context)
            roles = {one.bid.name: one.role for one in context.bid_statuses}
            assert roles == {NAME: Role.INCUMBENT, waits.name: Role.SURPLUS}


def test_hedges_are_withdrawn_with_their_reason_when_one_is_granted() -> None:
    waits = {"a": 20.0, "b": 1e9, "c": 1e9}
    toy = Toy(slot(), grants=waits.__getitem__)
    toy.run(until=lambda toy: toy.slot_history().attempts == 1)
    told = [event for event in toy.events if event.kind == "bid.withdrawn"]
    assert len(told) == 2
    assert all(event.facts["why"].endswith(": another request was granted") for event in told)


def test_the_plan_wakes_when_an_unhealthy_node_reaches_its_limit() -> None:
    for ago in (1.0, UNHEALTHY_S_MAX - 1):
        context = case(
            WANTED_SLOT,
            NodeNeed.SEEK,
            replace(known(frozenset({"granted"}), 9.0), unhealthy_at=NOW - ago),
        )
        assign_roles(context)
        assert context.wake_at == NOW - ago + UNHEALTHY_S_MAX


def test_a_replacement_in_trouble_before_it_is_set_up_is_given_back_after_five_minutes() -> None:
    """Whatever the trouble is; one that is set up, or that no other node stands for, is kept."""
    old = bid(granted_at=1.0, ready_at=2.0, prepared="c", unhealthy_at=NOW - UNHEALTHY_S_MAX)
    new = bid(name="gpt-0-g2-me", generation=2, asked_at=NOW - 400, granted_at=NOW - 390)
    for since, expected in ((NOW - SPARE_S_MAX, Role.DEAD), (NOW - 299.0, Role.INCUMBENT)):
        sick = replace(new, ready_at=NOW - 380, unhealthy_at=since)
        silent = replace(new, ready_at=NOW - 380, silent_at=since + SILENT_S)
        never = replace(new, ready_at=since)
        rows = [(old, one, heard_at, expected)
            for one, heard_at in ((sick, NOW), (silent, since), (never, 0.0))
        ]  # fmt: skip
        rows += [
            (replace(old, lost_at=NOW - 1, lost_how="preempted"), silent, since, Role.INCUMBENT),
            (replace(old, withdrawn_at=NOW - 1, withdrawn_why="so"), never, 0.0, Role.INCUMBENT),
            (old, replace(silent, prepared="c"), since, Role.INCUMBENT),
        ]
        for before, one, heard_at, role in rows:
            toy = case(slot(), NodeNeed.SEEK, before, one)
            status = toy.bid_statuses[1]
            status.hosts = (host(0), host(1, reached=False, heard_at=heard_at))
            status.whole = False
            assign_roles(toy)
            assert status.role is role, (since, before, one)
            if (before, one.prepared, role) == (old, "", Role.INCUMBENT):
                assert toy.wake_at == NOW + 1.0
    assert BIDS[Role.DEAD][BidPhase.READY] is BidAction.WITHDRAW


def test_a_withdrawal_goes_to_the_zone_of_the_node_and_wakes_the_plan() -> None:
    for shown, withdrawn_ago, sent in (("a", None, True), ("b", None, True), ("a", 4.0, False)):
        gone = bid(withdrawn_at=withdrawn_ago and NOW - withdrawn_ago, withdrawals=1)
        context = case(slot(goal=Goal.GONE), NodeNeed.NONE, gone)
        context.bid_statuses[0].observation = sight(NodeState.READY, zone=shown)
        assign_roles(context)
        apply_bid_table(context)
        assert [step.action for step in context.steps] == (
            [Withdraw(bid=NAME, slot="gpt-0", zone=shown)] if sent else []
        )
        assert context.wake_at == (inf if sent else NOW - 4.0 + AGAIN_S)


def test_what_became_ready_after_its_withdrawal_is_withdrawn_again_at_once() -> None:
    for ready_ago, sent in ((None, False), (9.0, False), (4.0, False), (3.0, True)):
        gone = bid(
            withdrawn_at=NOW - 4.0,
            withdrawals=5,
            withdrawn_why=f"{NAME}: no longer needed",
            ready_at=ready_ago and NOW - ready_ago,
        )
        context = case(slot(goal=Goal.GONE), NodeNeed.NONE, gone)
        context.bid_statuses[0].observation = sight(NodeState.READY, zone="a")
        assign_roles(context)
        apply_bid_table(context)
        assert [step.why for step in context.steps] == [f"{NAME}: no longer needed"] * sent


def test_an_event_of_an_unknown_slot_changes_nothing() -> None:
    for kind in ("bid.granted", "bid.ready", "bid.lost", "bid.refused"):
        facts = {"bid": NAME, "cause": "lost", "refusal": "stockout", "message": "no"}
        told = HistoryEvent(at=NOW, kind=kind, job="gpt", slot="gpt-0", facts=facts)
        assert not apply_event(History(), told).zone_stats


# ---- several zones at once -----------------------------------------------------------------------


def racing(
    *others: BidRecord, lead: BidRecord | None = None, offers: str = "abcd"
) -> dict[str, Role]:
    """The roles beside a bid that is granted and not READY."""
    lead = lead or bid(granted_at=NOW - 5, asked_at=NOW - 9)
    wanted_slot = replace(WANTED_SLOT, offers=tuple(map(offer, offers)))
    context = case(wanted_slot, NodeNeed.SEEK, lead, *others)
    assign_roles(context)
    return {one.bid.name: one.role for one in context.bid_statuses}


def rival(generation: int, zone: str, **changes: Any) -> BidRecord:
    made: dict[str, Any] = {"generation": generation, "offer": offer(zone), "asked_at": NOW - 9}
    return bid(name=f"gpt-0-g{generation}-me", **made | changes)


def test_two_rivals_stay_until_a_node_is_ready() -> None:
    others = (rival(2, "b"), rival(3, "c", granted_at=NOW - 1), rival(4, "d"))
    roles = racing(*others)
    assert [roles[one.name] for one in others] == [Role.CANDIDATE, Role.CANDIDATE, Role.SURPLUS]
    assert roles[NAME] is Role.INCUMBENT
    for changes in ({"ready_at": NOW - 1}, {"prepared": WANTED_SLOT.code_digest}):
        lead = bid(granted_at=NOW - 5, **changes)
        if "prepared" in changes:
            both = (host(0), host(1))
            lead = replace(lead, prepared_on=tuple(map(host_fingerprint, both)))
        assert set(racing(*others, lead=lead).values()) == {Role.INCUMBENT, Role.SURPLUS}


def test_the_first_node_that_is_ready_fills_the_slot() -> None:
    quicker = rival(2, "b", granted_at=NOW - 1, ready_at=NOW)
    assert racing(quicker) == {NAME: Role.SURPLUS, quicker.name: Role.INCUMBENT}
    slower = replace(quicker, ready_at=NOW + 1)
    lead = bid(granted_at=NOW - 1, ready_at=NOW)
    assert racing(slower, lead=lead) == {NAME: Role.INCUMBENT, slower.name: Role.SURPLUS}


def test_a_rival_stays_only_where_it_takes_nothing_from_others() -> None:
    dear, poor = offer("b", tier="on-demand"), offer("b", rank=1)
    wanted_slot = replace(WANTED_SLOT, offers=(offer("a"), dear, poor))
    context = case(
        wanted_slot,
        NodeNeed.SEEK,
        bid(granted_at=NOW - 5),
        rival(2, "b", offer=dear),
        rival(3, "b", offer=poor),
    )
    assign_roles(context)
    assert [one.role for one in context.bid_statuses[1:]] == [Role.SURPLUS, Role.SURPLUS]
    other = rival(2, "b", granted_at=NOW - 1)
    key = zone_stats_key(other.offer)
    waits = {key: {"gpt-1"}}
    full = History(zone_stats={key: ZoneStats(refusal=Refusal.QUOTA, sentence="full")})
    for changes, role in (
        ({}, Role.CANDIDATE),
        ({"awaited": {key: {"gpt-0"}}}, Role.CANDIDATE),
        ({"awaited": waits}, Role.SURPLUS),
        ({"history": full}, Role.SURPLUS),
    ):
        context = case(WANTED_SLOT, NodeNeed.SEEK, bid(granted_at=NOW - 5), other)
        context.world = replace(context.world, **changes)
        assign_roles(context)
        assert context.bid_statuses[1].role is role, changes


def test_slots_of_one_job_do_not_hold_two_nodes_while_one_has_none() -> None:
    """One machine in each of two zones, both granted to the same slot: it gives one back at once,
    not when the first is READY.
    """
    two = tuple(map(offer, "ab"))
    toy = Toy(slot("gpt-0", offers=two), slot("gpt-1", offers=two))
    toy.machines = 1

    def is_settled(toy: Toy) -> bool:
        kept = [
            one.ask.slot
            for one in toy.toy_nodes.values()
            if one.node in {NodeState.MAKING, NodeState.READY}
        ]
        assert len(kept) == len(set(kept)), kept
        return all(one.attempts for one in toy.history.slots.values())

    toy.run(until=is_settled)
    asked = [event.slot for event in toy.kinds("bid.granted")]
    assert sorted(set(asked)) == ["gpt-0", "gpt-1"] and len(asked) == 3, "one was given back"


def test_with_a_hedge_of_one_each_zone_has_its_turn() -> None:
    toy = Toy(
        slot(limits=Limits(patience_s=60.0), offers=tuple(map(offer, "abc"))),
        grants={"a": inf, "b": inf, "c": 20.0}.__getitem__,
    )
    toy.desired = replace(toy.desired, hedge=1)
    toy.run(until=lambda toy: toy.slot_history().attempts == 1)
    asked = [event.facts["offer"]["zone"] for event in toy.kinds("bid.requested")]
    assert asked == ["a", "b", "c"]
    told = [event.facts["why"] for event in toy.kinds("bid.withdrawn")]
    assert all(why.endswith("not granted in time; trying the next zone") for why in told)
