"""Phases, roles and health of a bid, from what the cloud and the hosts report."""

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest

from tests.unit.planner_scenes import (  # fmt: skip
    ATTEMPT,
    NAME,
    NOW,
    bid,
    case,
    host,
    node,
    seen,
    sight,
    stood,
)
from tests.unit.toy_cloud import offer, slot
from tpuherd.jobfile.fields import TIERS
from tpuherd.model.observed import (
    HostRun,
    HostStatus,
    NodeState,
    Outlook,
    RequestState,
    RunState,
)
from tpuherd.model.slot_history import (
    AttemptRecord,
    BidRecord,
    History,
    SlotHistory,
    Verdict,
)
from tpuherd.model.slots_and_plan import (
    Goal,
    Limits,
    RequestKind,
)
from tpuherd.planner import (
    bid_status,
    bidding,
)
from tpuherd.planner.bid_status import BidStatus, NodeNeed
from tpuherd.planner.policy import BidPhase, Role


def unhealthy(
    mine: BidRecord,
    hosts: tuple[HostStatus, ...] = (),
    history: History | None = None,
    **changes: Any,
) -> tuple[str, float | None]:
    shown = sight(NodeState.READY)
    one = BidStatus(
        bid=mine, stage=BidPhase.READY, observation=shown, hosts=hosts,
        whole=bid_status.is_fully_reached(mine, shown, hosts),
    )  # fmt: skip
    return bid_status.needs_replacement(one, seen(**changes), history or History(), NOW)


@pytest.mark.parametrize(
    ("request_word", "words", "ready", "found"),
    [
        (RequestState.QUEUED, (), False, BidPhase.QUEUED),
        (RequestState.GRANTED, (), False, BidPhase.GRANTED),
        (RequestState.GRANTED, (NodeState.MAKING,), False, BidPhase.GRANTED),
        (RequestState.GRANTED, (NodeState.READY,), False, BidPhase.GRANTED),
        (RequestState.ACTIVE, (NodeState.READY,), False, BidPhase.READY),
        (RequestState.ACTIVE, (), False, BidPhase.GRANTED),
        (RequestState.ACTIVE, (), True, BidPhase.LOST),
        (RequestState.GRANTED, (), True, BidPhase.GRANTED),
        (None, (NodeState.READY,), True, BidPhase.READY),
        (None, (NodeState.MAKING,), False, BidPhase.GRANTED),
        (None, (NodeState.UNHEALTHY,), True, BidPhase.UNHEALTHY),
        (None, (NodeState.LOST,), True, BidPhase.LOST),
        (None, (NodeState.STOPPING,), True, BidPhase.LOST),
        (None, (NodeState.LEAVING,), True, BidPhase.LEAVING),
        (None, (NodeState.UNKNOWN,), True, BidPhase.UNKNOWN),
        (RequestState.ACTIVE, (NodeState.READY, NodeState.UNHEALTHY), True, BidPhase.UNHEALTHY),
        (RequestState.ACTIVE, (NodeState.UNHEALTHY, NodeState.UNKNOWN), True, BidPhase.UNKNOWN),
        (RequestState.ACTIVE, (NodeState.UNKNOWN, NodeState.LEAVING), True, BidPhase.LEAVING),
        (RequestState.ACTIVE, (NodeState.LEAVING, NodeState.LOST), True, BidPhase.LOST),
        (RequestState.QUEUED, (NodeState.MAKING,), False, BidPhase.GRANTED),
        (None, (NodeState.MAKING,), True, BidPhase.GRANTED),
        (RequestState.ENDING, (NodeState.READY,), True, BidPhase.ENDING),
        (RequestState.LOST, (NodeState.READY,), True, BidPhase.LOST),
        (RequestState.REFUSED, (), False, BidPhase.REFUSED),
        (RequestState.LEAVING, (NodeState.LOST,), True, BidPhase.LEAVING),
        (RequestState.UNKNOWN, (NodeState.READY,), True, BidPhase.UNKNOWN),
    ],
)
def test_observations_of_a_bid(
    request_word: RequestState | None, words: tuple[NodeState, ...], ready: bool, found: BidPhase
) -> None:
    mine = bid(ready_at=5.0 if ready else None)
    assert bid_status.phase_from_cloud(mine, sight(*words, request=request_word)) is found


def test_a_node_without_machines_is_not_granted_yet() -> None:
    empty = sight(nodes=(node(NodeState.MAKING, hosts=0),))
    assert bid_status.phase_from_cloud(bid(), empty) is BidPhase.QUEUED
    assert bid_status.phase_from_cloud(bid(ready_at=1.0), empty) is BidPhase.GRANTED
    assert (
        bid_status.phase_from_cloud(bid(), replace(empty, request=RequestState.GRANTED))
        is BidPhase.GRANTED
    )
    some = sight(nodes=(*empty.nodes, node(NodeState.MAKING)))
    assert bid_status.phase_from_cloud(bid(), some) is BidPhase.GRANTED


def test_a_responding_host_is_not_gone_because_a_list_is_outdated() -> None:
    bare = sight(request=RequestState.ACTIVE)
    known = bid(ready_at=1.0)
    assert bid_status.phase_from_cloud(known, bare, (host(reached=False),)) is BidPhase.LOST
    assert (
        bid_status.phase_from_cloud(known, bare, (host(reached=False), host(1))) is BidPhase.HIDDEN
    )
    assert bid_status.phase_from_cloud(known, sight(NodeState.LOST), (host(),)) is BidPhase.LOST


def test_fewer_nodes_than_requested_are_not_ready() -> None:
    two = sight(NodeState.READY, NodeState.READY, request=RequestState.ACTIVE)
    assert bid_status.phase_from_cloud(bid(nodes=2), two) is BidPhase.READY
    assert bid_status.phase_from_cloud(bid(nodes=3), two) is BidPhase.GRANTED


def test_the_phase_of_an_unseen_bid() -> None:
    late = NOW - 2 * bid_status.LAG_S
    for changes, observed, found in [
        ({}, seen(calling=frozenset([NAME])), BidPhase.CALLING),
        ({}, seen(zones=frozenset("b")), BidPhase.HIDDEN),
        ({}, seen(surveyed_at=NOW - 900), BidPhase.HIDDEN),
        ({}, seen(surveyed_at=NOW - 899), BidPhase.UNSEEN),
        ({"withdrawn_at": NOW - 1}, seen(), BidPhase.HIDDEN),
        ({"withdrawn_at": NOW - 2}, seen(), BidPhase.VANISHED),
        ({"granted_at": 1.0}, seen(), BidPhase.HIDDEN),
        ({"granted_at": 1.0, "lost_at": 2.0}, seen(), BidPhase.VANISHED),
        ({"answered_at": late, "sent_at": NOW - bid_status.LAG_S + 1}, seen(), BidPhase.HIDDEN),
        ({"answered_at": late, "sent_at": NOW - bid_status.LAG_S}, seen(), BidPhase.UNSEEN),
        ({"sent_at": NOW - 5}, seen(), BidPhase.UNSEEN),
    ]:
        assert bid_status.bid_phase(bid(**changes), None, observed, NOW) is found, changes


def test_all_hosts_are_reached_including_those_that_the_cloud_shows() -> None:
    both = (host(0), host(1))
    ready = sight(NodeState.READY)
    assert bid_status.is_fully_reached(bid(), ready, both)
    assert bid_status.is_fully_reached(bid(), None, both)
    assert not bid_status.is_fully_reached(bid(), ready, ())
    assert not bid_status.is_fully_reached(bid(), ready, both[:1])
    assert not bid_status.is_fully_reached(bid(), ready, (host(0), host(1, reached=False)))
    assert not bid_status.is_fully_reached(bid(), ready, (host(0), host(1, incarnation="j")))
    four = sight(nodes=(node(hosts=4),))
    assert not bid_status.is_fully_reached(bid(), four, both)
    assert not bid_status.is_fully_reached(bid(nodes=2), ready, both)
    assert bid_status.expected_hosts(bid(), four) == 4
    assert bid_status.expected_hosts(bid(nodes=3), four) == 6
    assert bid_status.expected_hosts(bid(), None) == 2


def test_prepared_means_this_code_on_these_boots() -> None:
    mine = bid(prepared="c", prepared_on=("i b0", "i b1"))
    hosts = (host(0), host(1))
    one = BidStatus(bid=mine, stage=BidPhase.READY, observation=None, hosts=hosts, whole=True)
    assert bid_status.is_prepared(one, "c")
    assert not bid_status.is_prepared(one, "d")
    one.hosts = (host(0), host(1, boot="b2"))
    assert not bid_status.is_prepared(one, "c")


def test_what_setup_is_needed() -> None:
    ok = AttemptRecord(
        id="x", number=1, bid=NAME, code_digest="c", launched_at=1, ended_at=2,
        verdict=Verdict.SUCCESS,
    )  # fmt: skip
    keep = Limits(done_keep_s=10, failed_keep_s=20)
    for goal, attempt, done, gave_up, found in [
        (Goal.GONE, None, None, None, NodeNeed.NONE),
        (Goal.RUN, None, None, None, NodeNeed.SEEK),
        (Goal.RUN, replace(ok, verdict=Verdict.FAILURE), None, None, NodeNeed.SEEK),
        (Goal.RUN, ok, None, None, NodeNeed.HOLD),
        (Goal.RUN, ok, NOW - 9, None, NodeNeed.HOLD),
        (Goal.RUN, ok, NOW - 10, None, NodeNeed.NONE),
        (Goal.IDLE, ok, NOW - 10, None, NodeNeed.SEEK),
        (Goal.RUN, None, None, NOW - 19, NodeNeed.HOLD),
        (Goal.IDLE, None, None, NOW - 20, NodeNeed.NONE),
        (Goal.GONE, ok, NOW, NOW, NodeNeed.NONE),
    ]:
        slot_history = SlotHistory(attempt=attempt, done_at=done, gave_up_at=gave_up)
        assert bid_status.node_need(slot(goal=goal, limits=keep), slot_history, NOW) is found


def test_outdated() -> None:
    wanted_slot = slot(offers=(offer("a"), offer("b")))
    assert not bid_status.is_outdated(bid(), wanted_slot)
    assert bid_status.is_outdated(bid(node_digest="m"), wanted_slot)
    rows: list[tuple[dict[str, Any], bool, bool]] = [
        ({"zone": "c"}, True, False),
        ({"tier": "on-demand"}, True, False),
        ({"type": "v5"}, True, True),
        ({"runtime": "q"}, True, True),
        ({"price": 9.0}, False, False),
        ({"kind": RequestKind.DIRECT}, True, False),
    ]
    for changes, waiting, held in rows:
        other = bid(offer=offer(**{"zone": "a", **changes}))
        assert bid_status.is_outdated(other, wanted_slot) == waiting
        assert bid_status.is_outdated(replace(other, granted_at=1.0), wanted_slot) == held
    either = slot(offers=(offer("a", type="v5"), offer("b")))
    assert not bid_status.is_outdated(bid(granted_at=1.0), either)
    assert bid_status.is_outdated(bid(granted_at=1.0, offer=offer("b", runtime="q")), either)


def test_the_incumbent() -> None:
    rows = [
        bid(name="used", granted_at=9.0, generation=4),
        bid(name="prepared", granted_at=8.0, generation=3, prepared="c"),
        bid(name="early", granted_at=5.0, generation=2),
        bid(name="low", granted_at=6.0, generation=1),
        bid(name="high", granted_at=6.0, generation=5),
    ]
    attempt = AttemptRecord(id="x", number=1, bid="used", code_digest="c", launched_at=1)
    live, over = SlotHistory(attempt=attempt), SlotHistory(attempt=replace(attempt, ended_at=2.0))
    for slot_history, order in [
        (live, ["used", "prepared", "early", "low", "high"]),
        (over, ["prepared", "early", "low", "high", "used"]),
    ]:
        left = [
            BidStatus(bid=one, stage=BidPhase.READY, observation=None, hosts=(), whole=False)
            for one in rows
        ]
        for name in order:
            assert bid_status.choose_incumbent(left, slot_history).bid.name == name
            left = [one for one in left if one.bid.name != name]


def test_unhealthy() -> None:
    ready = bid(granted_at=NOW - 800, ready_at=NOW - 700)
    both = (host(0), host(1))
    assert unhealthy(ready, both) == ("", inf)
    quarantined = History(bad_nodes={NAME: 1.0})
    assert unhealthy(ready, both, quarantined) == ("its chips failed to initialize", None)
    most = bid_status.NODE_FAILURES_MAX
    assert unhealthy(replace(ready, node_failures=most - 1), both)[0] == ""
    assert "failed 5 times" in unhealthy(replace(ready, node_failures=most), both)[0]
    assert "failed 6 times" in unhealthy(replace(ready, unprepared=most + 1), both)[0]
    for ago, over in ((bid_status.UNHEALTHY_S_MAX, True), (bid_status.UNHEALTHY_S_MAX - 1, False)):
        why, due = unhealthy(replace(ready, unhealthy_at=NOW - ago), both)
        assert ("unhealthy" in why, due) == (over, None if over else NOW + 1)
    for ago, over in ((bid_status.MAKING_S_MAX, True), (bid_status.MAKING_S_MAX - 1, False)):
        why, due = unhealthy(bid(granted_at=NOW - ago))
        assert ("READY" in why, due) == (over, None if over else NOW + 1)
    assert unhealthy(bid()) == ("", inf)


def test_nothing_is_unhealthy_before_the_first_survey_after_an_absence() -> None:
    sick = bid(granted_at=1.0, ready_at=2.0, unhealthy_at=3.0)
    assert unhealthy(sick)[0]
    assert unhealthy(sick, awake_at=NOW) == ("", inf)
    assert unhealthy(sick, None or (), History(started_at=NOW)) == ("", inf)
    assert unhealthy(sick, awake_at=NOW - 1)[0]


def test_silence_counts_from_when_the_engine_could_have_heard() -> None:
    ready = bid(granted_at=NOW - 80_000, ready_at=NOW - 70_000)
    most = bid_status.UNHEALTHY_S_MAX
    for heard, awake, started, frozen, over in [
        (NOW - most, 0.0, 0.0, None, True),
        (NOW - most + 1, 0.0, 0.0, None, False),
        (NOW - 50_000, NOW - most + 1, 0.0, None, False),
        (NOW - 50_000, NOW - most, 0.0, None, True),
        (NOW - 50_000, 0.0, NOW - most + 1, None, False),
        (NOW - 50_000, 0.0, 0.0, NOW - 9, False),
    ]:
        hosts = (host(0), host(1, reached=False, heard_at=heard))
        history = History(started_at=started, frozen_at=frozen)
        why, due = unhealthy(ready, hosts, history, awake_at=awake)
        assert bool(why) == over, (heard, awake, started, frozen)
        assert (due is None) == over


def test_recorded_silence_counts_through_absences_of_the_engine() -> None:
    """A new engine asks a silent host for two minutes, or not at all if another was requested."""
    most = bid_status.UNHEALTHY_S_MAX - bid_status.SILENT_S
    for silent_s, away_s, decided, over in [
        (most, 9_000.0, False, True),
        (most - 1, 9_000.0, False, False),
        (most, bid_status.RETURN_S, False, True),
        (most, bid_status.RETURN_S - 1, False, False),
        (most, 0.5, True, True),
        (most - 1, 0.5, True, False),
    ]:
        ready = bid(granted_at=1.0, ready_at=2.0, prepared="c", silent_at=NOW - silent_s)
        hosts = (host(0), host(1, reached=False, heard_at=0.0))
        one = stood(bid=ready, hosts=hosts, whole=False)
        history = History(started_at=NOW - away_s, frozen_at=3.0 if decided else None)
        why, due = bid_status.needs_replacement(one, seen(), history, NOW, decided=decided)
        assert (bool(why), due is None) == (over, over), (silent_s, away_s, decided)
        back = stood(bid=ready)
        assert bid_status.needs_replacement(back, seen(), history, NOW, decided=decided)[0] == ""


def test_a_replacement_in_the_making_decides_even_before_the_first_survey() -> None:
    sick = bid(granted_at=1.0, ready_at=2.0, unhealthy_at=NOW - bid_status.UNHEALTHY_S_MAX)
    new = replace(bid(), name="gpt-0-g2-me", generation=2, asked_at=NOW - 1)
    ends: list[tuple[dict[str, Any], Role]] = [
        ({}, Role.UNHEALTHY),
        ({"withdrawn_at": NOW}, Role.INCUMBENT),
        ({"lost_at": NOW, "lost_how": "preempted"}, Role.INCUMBENT),
        ({"asked_at": NOW - 1000}, Role.INCUMBENT),
    ]
    for changes, role in ends:
        both = stood(bid=sick), stood(bid=replace(new, **changes))
        here = case(*both, observed=seen(awake_at=NOW))
        assert bidding.fixed_role(here, both[0])[0] is role


def test_a_silent_node_comes_after_one_that_is_set_up_and_answers() -> None:
    old = bid(granted_at=1.0, ready_at=2.0, prepared="c")
    new = replace(old, name="gpt-0-g2-me", generation=2, granted_at=3.0, ready_at=4.0)
    slot_history = SlotHistory(attempt=ATTEMPT)
    for silent_at, whole, prepared, chosen in [
        (None, False, "c", old),
        (NOW, True, "c", old),
        (NOW, False, "", old),
        (NOW, False, "c", new),
    ]:
        first = stood(bid=replace(old, silent_at=silent_at), whole=whole)
        second = stood(bid=replace(new, prepared=prepared))
        found = bid_status.choose_incumbent([first, second], slot_history)
        assert found.bid.name == chosen.name, (silent_at, whole, prepared)


def test_a_host_is_silent_after_a_minute_or_once_the_others_went_on() -> None:
    def works(at: float) -> tuple[HostRun, ...]:
        return (HostRun(attempt="a", word=RunState.RUNNING, step=3, stepped_at=at),)

    for heard_at, stepped_at, awake_at, expected in [
        (NOW - 30, NOW - 30, 0.0, (NOW - 30, NOW + 30)),
        (NOW - 30, NOW - 20, 0.0, (NOW - 30, NOW + 30)),
        (NOW - 30, NOW - 19, 0.0, (NOW - 30, NOW - 30)),
        (NOW - 30, NOW - 1, NOW - 5, (NOW - 30, NOW + 55)),  # the engine had slept
        (0.0, NOW - 1, NOW - 5, (NOW - 5, NOW + 55)),  # an earlier engine had reached it
    ]:
        hosts = host(0, works=works(stepped_at)), host(1, reached=False, heard_at=heard_at)
        one = stood(bid=bid(ready_at=2.0, prepared="c"), hosts=hosts, whole=False)
        observed = seen(awake_at=awake_at)
        assert bid_status.silent_since(one, observed, History(), "a") == expected
    assert bid_status.silent_since(stood(), seen(), History(), "a") == (inf, inf)


def test_unreached_hosts_are_waited_for_an_hour_and_in_large_pods_two() -> None:
    never = (host(0, reached=False, heard_at=0.0),)
    for hosts_many, ago, over in [
        (2, bid_status.BOOT_S_MAX, True),
        (2, bid_status.BOOT_S_MAX - 1, False),
        (63, bid_status.BOOT_S_MAX, True),
        (64, bid_status.BOOT_S_MAX, False),
        (64, 2 * bid_status.BOOT_S_MAX, True),
    ]:
        mine = bid(granted_at=1.0, ready_at=NOW - ago, offer=offer("a", hosts=hosts_many))
        assert bool(unhealthy(mine, never)[0]) == over
        assert bool(unhealthy(mine)[0]) == over
        assert unhealthy(mine, never, History(started_at=NOW - 1))[0] == ""
        assert unhealthy(mine, never, awake_at=NOW - 1)[0] == ""


def test_five_failures_in_a_row_are_too_many() -> None:
    for what in ("node_failures", "unprepared"):
        for many, too_often in ((4, False), (5, True)):
            found, _ = bid_status.needs_replacement(
                stood(bid=bid(**{what: many})), seen(), History(), NOW
            )
            assert bool(found) == too_often


def test_why_a_node_is_unhealthy() -> None:
    sick = {"unhealthy_at": NOW - bid_status.UNHEALTHY_S_MAX}
    old = NOW - bid_status.MAKING_S_MAX
    far = (host(0, reached=False, heard_at=NOW - bid_status.UNHEALTHY_S_MAX), host(1))
    for one, why in [
        (stood(bid=bid(**sick, ready_at=2.0)), "it has been unhealthy for too long"),
        (stood(bid=bid(granted_at=old)), "it has not become READY in time"),
        (stood(bid=bid(granted_at=old, unhealthy_at=NOW - 1)), "it has not become READY in time"),
        (stood(hosts=far, whole=False), "its hosts have not responded for too long"),
    ]:
        assert bid_status.needs_replacement(one, seen(), History(), NOW) == (why, None)


def test_a_host_that_shuts_down_is_awaited() -> None:
    """For 10 s if it is likely to be a preemption, else as long as one that is silent."""
    for tier, outlook, exact in product(TIERS, Outlook, (True, False)):
        likely = outlook is Outlook.OFF and tier in {"spot", "preemptible"}
        most_s = bid_status.OFF_S_MAX if likely else bid_status.UNHEALTHY_S_MAX
        for ago in (most_s - 1, most_s):
            left = host(0, outlook=outlook, notice_at=NOW - ago)
            mine = bid(ready_at=2.0, offer=offer("a", tier=tier))
            found, _ = bid_status.needs_replacement(
                stood(bid=mine, hosts=(left, host(1))), seen(), History(), NOW, exact=exact
            )
            assert bool(found) == (left.is_leaving and ago == most_s and not exact)


def test_a_slot_with_a_fixed_name_withdraws_the_old_node_first() -> None:
    silent = (host(0, reached=False, heard_at=1.0), host(1))
    for exact, outdated, unhealthy in (
        (True, Role.DEAD, Role.DEAD),
        (False, Role.OUTDATED, Role.UNHEALTHY),
    ):
        wanted_slot = slot(exact=exact, node_digest="m")
        assert bidding.fixed_role(case(slot=wanted_slot), stood())[0] is outdated
        wanted_slot = slot(exact=exact)
        assert bidding.fixed_role(case(slot=wanted_slot), stood())[0] is Role.INCUMBENT
        old = stood(hosts=silent, whole=False)
        assert bidding.fixed_role(case(slot=wanted_slot), old)[0] is unhealthy
