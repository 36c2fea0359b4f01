"""The planner's smaller modules: phases, roles, limits, the deletion guard, events, adoption."""

from dataclasses import asdict, replace
from itertools import product
from math import inf
from types import ModuleType
from typing import Any

import pytest

from tests.unit.planner_scenes import NAME, NOW, bid, host, node, seen, sight
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history import apply_bid_events, apply_zone_events
from tpuherd.history.apply_event import apply_event
from tpuherd.jobfile.jobs_from_cards import rebuild_records
from tpuherd.jobfile.read_job import job_document, read_fields
from tpuherd.model.observed import (
    BidObservation,
    HostStatus,
    NodeState,
    ObservedState,
    RequestState,
)
from tpuherd.model.slot_history import AttemptRecord, BidRecord, History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import Goal, Limits, Refusal, RequestKind
from tpuherd.planner import (
    bid_status,
    bidding,
    deletion_guard,
    gang_actions,
    gang_progress,
    retry_limits,
    step_events,
    verdict,
)
from tpuherd.planner.bid_status import BidStatus, NodeNeed
from tpuherd.planner.observations_to_events import (
    find_bid_events,
    quarantine_events,
    vanishing_events,
)
from tpuherd.planner.plan import find_orphans
from tpuherd.planner.policy import BidPhase

# ---- stages --------------------------------------------------------------------------------------


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


# ---- what is wanted ------------------------------------------------------------------------------


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


# ---- notes ---------------------------------------------------------------------------------------


def kinds(
    mine: BidRecord,
    shown: BidObservation | None,
    stage: BidPhase,
    hosts: tuple[HostStatus, ...] = (),
) -> list[str]:
    return [note.kind for note in find_bid_events(mine, stage, shown, hosts)]


def test_events_about_what_the_cloud_shows() -> None:
    ready = sight(NodeState.READY)
    assert kinds(bid(), ready, BidPhase.READY) == ["bid.granted", "bid.ready"]
    assert kinds(bid(granted_at=1.0), ready, BidPhase.READY) == ["bid.ready"]
    known = bid(granted_at=1.0, ready_at=2.0)
    assert kinds(known, ready, BidPhase.READY) == []
    assert kinds(replace(known, missed_at=3.0), ready, BidPhase.READY) == ["bid.reappeared"]
    assert kinds(replace(known, unhealthy_at=3.0), ready, BidPhase.READY) == ["bid.healthy"]
    sick = sight(nodes=(node(), node(NodeState.UNHEALTHY, state="READY", health="UNHEALTHY_TPU")))
    (note,) = find_bid_events(known, BidPhase.UNHEALTHY, sick, ())
    assert (note.kind, note.facts) == ("bid.unhealthy", {"bid": NAME, "state": "UNHEALTHY_TPU"})
    assert kinds(replace(known, unhealthy_at=3.0), sick, BidPhase.UNHEALTHY) == []
    assert kinds(bid(), sick, BidPhase.UNHEALTHY) == ["bid.granted", "bid.unhealthy"]
    assert kinds(bid(), sight(request=RequestState.QUEUED), BidPhase.QUEUED) == []
    assert kinds(bid(), ready, BidPhase.CALLING) == []
    assert kinds(bid(), ready, BidPhase.HIDDEN) == []


def test_events_about_refusals_and_losses() -> None:
    failed = sight(
        request=RequestState.REFUSED, refusal=Refusal.QUOTA, sentence="no", state="FAILED"
    )
    (note,) = find_bid_events(bid(), BidPhase.REFUSED, failed, ())
    assert note.facts == {"bid": NAME, "refusal": "quota", "message": "no"}
    plain = replace(failed, refusal=None, sentence="")
    (note,) = find_bid_events(bid(), BidPhase.REFUSED, plain, ())
    assert note.facts == {"bid": NAME, "refusal": "broken", "message": "FAILED"}
    assert kinds(bid(refusal=Refusal.QUOTA), failed, BidPhase.REFUSED) == []
    for stage, shown, how in [
        (BidPhase.LOST, sight(NodeState.LOST), "lost"),
        (
            BidPhase.LOST,
            sight(nodes=(node(), node(NodeState.LOST, state="PREEMPTED"))),
            "preempted",
        ),
        (BidPhase.ENDING, sight(NodeState.READY, state="SUSPENDING"), "suspending"),
        (BidPhase.LOST, sight(request=RequestState.LOST, state="SUSPENDED"), "suspended"),
        (BidPhase.LOST, sight(request=RequestState.ACTIVE), "lost"),
        (BidPhase.LEAVING, sight(NodeState.LEAVING), "deleted by someone else"),
    ]:
        (note,) = find_bid_events(bid(), stage, shown, ())
        assert (note.kind, note.facts["cause"]) == ("bid.lost", how)
        assert kinds(bid(lost_at=1.0), shown, stage) == []
        assert kinds(bid(withdrawn_at=1.0), shown, stage) == []


def test_events_about_missing_bids() -> None:
    assert kinds(bid(withdrawn_at=1.0), None, BidPhase.VANISHED) == ["bid.deleted"]
    assert kinds(bid(lost_at=1.0), None, BidPhase.VANISHED) == []
    assert kinds(bid(refusal=Refusal.RATE), None, BidPhase.UNSEEN) == ["bid.deleted"]
    assert kinds(bid(refusal=Refusal.RATE), None, BidPhase.HIDDEN) == []
    assert kinds(bid(), None, BidPhase.UNSEEN) == []


def test_a_deadly_notice_is_recorded_once() -> None:
    shown = sight(NodeState.READY)
    known = bid(granted_at=1.0, ready_at=2.0)
    told = (host(0, notice="maintenance"), host(1, notice="preempted", deadly=True))
    (note,) = find_bid_events(known, BidPhase.READY, shown, told)
    facts = {"bid": NAME, "host": f"{NAME}/w1", "notice": "preempted"}
    assert (note.kind, note.facts) == ("bid.notice_received", facts)
    assert kinds(replace(known, notice_at=5.0), shown, BidPhase.READY, told) == []
    assert kinds(known, shown, BidPhase.READY, told[:1]) == []


def test_a_vanished_bid_is_first_missing_and_then_lost() -> None:
    known = bid(granted_at=1.0)

    def found(
        mine: BidRecord, hosts: tuple[HostStatus, ...] = (), sure: bool = True, **more: Any
    ) -> str:
        return "".join(note.kind for note in vanishing_events(mine, hosts, seen(**more), sure=sure))

    assert found(known) == "bid.missing"
    missed = replace(known, missed_at=NOW - 5)
    assert found(missed) == "bid.lost"
    assert found(missed, sure=False) == ""
    assert found(replace(known, missed_at=NOW - 1)) == ""
    assert found(missed, (host(0),)) == ""
    assert found(missed, (host(0, reached=False),)) == "bid.lost"
    for changes in ({"granted_at": None}, {"lost_at": 1.0}, {"withdrawn_at": 1.0}):
        assert found(replace(missed, **changes)) == ""
    for more in (
        {"zones": frozenset("b")},
        {"surveyed_at": NOW - 900},
        {"observations": {NAME: sight()}},
        {"calling": frozenset([NAME])},
    ):
        assert found(known, **more) == ""


def test_quarantine_after_two_failures() -> None:
    for faults, bad, expected in ((1, False, 0), (2, False, 1), (3, False, 1), (2, True, 0)):
        history = History(bad_nodes={NAME: 1.0} if bad else {})
        found = list(quarantine_events(bid(faults=faults), history))
        assert len(found) == expected
        assert all(note.facts["node"] == NAME for note in found)


# ---- the guard -----------------------------------------------------------------------------------


def fleet(nodes: int, silent: int, hosts: int = 2, **changes: Any) -> tuple[ObservedState, History]:
    history, sights, words = {}, {}, {}
    for number in range(nodes):
        name = f"gpt-{number}-g1-me"
        mine = bid(name=name, slot=f"gpt-{number}", granted_at=1.0, **changes)
        history[f"gpt-{number}"] = SlotHistory(bids={name: mine})
        sights[name] = replace(sight(NodeState.READY), bid=name)
        words[name] = tuple(
            host(worker, node=name, reached=number * hosts + worker >= silent)
            for worker in range(hosts)
        )
    return seen(observations=sights, hosts=words), History(slots=history)


def test_mass_silence_is_more_than_half_and_at_least_four() -> None:
    for nodes, silent in product(range(1, 6), range(11)):
        observed, history = fleet(nodes, silent)
        quiet = min(silent, nodes * 2)
        expected = quiet >= 4 and quiet > nodes
        assert bool(deletion_guard.silence_reason(observed, history)) == expected, (nodes, silent)
        assert deletion_guard.freeze_reason(observed, history) == deletion_guard.silence_reason(
            observed, history
        )


def test_silence_that_the_cloud_explains_is_no_mass_silence() -> None:
    observed, history = fleet(3, 6)
    lost = {name: sight(NodeState.LOST) for name in observed.observations}
    assert not deletion_guard.silence_reason(replace(observed, observations=lost), history)
    assert not deletion_guard.silence_reason(replace(observed, observations={}), history)
    never = {
        name: tuple(replace(one, heard_at=0.0) for one in words)
        for name, words in observed.hosts.items()
    }
    assert not deletion_guard.silence_reason(replace(observed, hosts=never), history)
    for changes in ({"lost_at": 1.0}, {"withdrawn_at": 1.0}, {"granted_at": None}):
        mine = {
            name: replace(
                slot_history,
                bids={key: replace(one, **changes) for key, one in slot_history.bids.items()},
            )
            for name, slot_history in history.slots.items()
        }
        assert not deletion_guard.silence_reason(observed, History(slots=mine))
        assert not deletion_guard.empty_list_reason(seen(), History(slots=mine))


def test_an_empty_list_is_suspect_if_two_bids_vanish_and_none_remains() -> None:
    for nodes, left in product(range(4), range(4)):
        observed, history = fleet(nodes, 99)
        names = list(observed.observations)
        shown = {name: observed.observations[name] for name in names[:left]}
        expected = nodes >= 2 and left == 0
        empty = replace(observed, observations=shown)
        assert bool(deletion_guard.empty_list_reason(empty, history)) == expected
        assert not deletion_guard.empty_list_reason(replace(empty, zones=frozenset()), history)
        assert not deletion_guard.empty_list_reason(replace(empty, surveyed_at=NOW - 900), history)
    observed, history = fleet(3, 5)
    assert not deletion_guard.empty_list_reason(replace(observed, observations={}), history)
    assert not deletion_guard.freeze_reason(replace(observed, observations={}), history)


def test_a_suspect_list_is_believed_if_it_repeats_after_a_minute() -> None:
    for frozen, surveyed, expected in [
        (None, 0.0, True),
        (NOW - 60, NOW - 1, True),
        (NOW - 59, NOW - 1, False),
        (NOW - 60, NOW - 60, False),
    ]:
        observed = seen(surveyed_at=surveyed)
        assert (
            deletion_guard.can_trust_absence(observed, History(frozen_at=frozen), NOW) == expected
        )


def test_the_documented_numbers() -> None:
    """docs/explanation/planner.md says these in words."""
    told: dict[ModuleType, dict[str, float]] = {
        bid_status: {"LAG_S": 60, "UNHEALTHY_S_MAX": 900, "BOOT_S_MAX": 3600, "MAKING_S_MAX": 7200,
                "FAULTS_MAX": 2, "NODE_FAILURES_MAX": 5},
        deletion_guard: {"HOSTS_MIN": 4, "SHARE": 0.5, "BIDS_MIN": 2, "BELIEVED_S": 60},
        gang_progress: {"HOLD_S": 20, "STOP_S": 45, "NOTICE_S": 5, "LAUNCH_S": 10,
                        "LAUNCHES_MAX": 5},
        retry_limits: {"PAUSE_S_MAX": 300, "CHIPS_PAUSE_S": 15},
        bidding: {"AGAIN_S": 10, "AGAIN_S_MAX": 300, "DRAIN_S": 30, "COLLECT_S_MAX": 600,
                  "COLLECTS_MAX": 3},
        gang_actions: {"UNCOLLECTED_S": 15, "UNCOLLECTED_S_MAX": 300},
        apply_zone_events: {"KEPT": 20, "PAUSE_S_MIN": 15, "PAUSE_S_MAX": 600, "PAUSE_LESS_S": 60},
        apply_bid_events: {"GONE_KEPT": 1000},
        verdict: {"LINES": 20, "CHIPS_MAX": 4, "INTERRUPTED": 75},
        step_events: {"SAVED_S": 60},
    }  # fmt: skip
    for room, numbers in told.items():
        assert {name: getattr(room, name) for name in numbers} == numbers, room.__name__


def test_default_limits_of_a_slot() -> None:
    assert Limits() == Limits(
        failures=3, preemptions=None, stalls=3, stall_s=600, first_step_s=2700, lifetime_s=inf,
        idle_s=inf, cost=inf, done_keep_s=0, failed_keep_s=0, patience_s=600, grace_s=30,
        notice_grace_s=25,
    )  # fmt: skip


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["failures", "stalls", "preemptions"])
def test_budgets_count_forgiven_failures(what: str) -> None:
    for many, most in product(range(4), [None, 0, 1, 2]):
        used: dict[str, Any] = {what: many}
        slot_history = SlotHistory(**used)
        changes: dict[str, Any] = {what: most}
        wanted_slot = slot(limits=replace(Limits(), **changes))
        expected = most is not None and many > most
        assert bool(retry_limits.reached_limit(wanted_slot, slot_history, NOW)) == expected
        assert not retry_limits.reached_limit(
            replace(wanted_slot, goal=Goal.IDLE), slot_history, NOW
        )


def test_lifetime_and_cost() -> None:
    wanted_slot = slot(limits=Limits(lifetime_s=100, cost=2.0))
    assert not retry_limits.reached_limit(wanted_slot, SlotHistory(), NOW)
    assert not retry_limits.reached_limit(wanted_slot, SlotHistory(first_launch_at=NOW - 99), NOW)
    assert "lifetime" in retry_limits.reached_limit(
        wanted_slot, SlotHistory(first_launch_at=NOW - 100), NOW
    )
    old = SlotHistory(first_launch_at=NOW - 100)
    assert not retry_limits.reached_limit(replace(wanted_slot, goal=Goal.IDLE), old, NOW)
    held = SlotHistory(spent=1.0, bids={NAME: bid(granted_at=NOW - 3599)})
    for goal in (Goal.RUN, Goal.IDLE):
        assert not retry_limits.reached_limit(replace(wanted_slot, goal=goal), held, NOW)
        assert "2.00 dollars, the limit is 2.00" in retry_limits.reached_limit(
            replace(wanted_slot, goal=goal), held, NOW + 1
        )
    assert sorted(retry_limits.limit_times(wanted_slot, held, NOW)) == [NOW + 1]
    times = retry_limits.limit_times(wanted_slot, replace(held, first_launch_at=NOW), NOW)
    assert sorted(times) == [
        NOW + 1, NOW + 100,
    ]  # fmt: skip
    assert list(retry_limits.limit_times(slot(), held, NOW)) == []
    assert list(retry_limits.limit_times(wanted_slot, SlotHistory(spent=1.0), NOW)) == []
    lost = SlotHistory(bids={NAME: bid(granted_at=NOW - 50, lost_at=NOW - 10)})
    assert list(retry_limits.limit_times(wanted_slot, lost, NOW)) == []


def test_a_script_that_refuses_to_run_is_believed_until_something_changes() -> None:
    refused = AttemptRecord(
        id="a", number=1, bid=NAME, code_digest="", launched_at=NOW, verdict=Verdict.FAILURE,
        exit=78, lines=("loading", "herd: no shards", "herd: too few shards", "bye"), unfit=True,
    )  # fmt: skip
    slot_history = SlotHistory(attempt=refused, failed_at=NOW, failed_why="w0 exited with 78")
    assert (
        retry_limits.reached_limit(slot(), slot_history, NOW)
        == "it can't run like this: too few shards"
    )
    own = replace(refused, lines=("loading", "batch must be divisible by 8"))
    said = retry_limits.reached_limit(slot(), replace(slot_history, attempt=own), NOW)
    assert said == "it can't run like this: batch must be divisible by 8"
    silent = replace(refused, lines=())
    said = retry_limits.reached_limit(slot(), replace(slot_history, attempt=silent), NOW)
    assert said == "it can't run like this: w0 exited with 78"
    assert not retry_limits.reached_limit(slot(goal=Goal.IDLE), slot_history, NOW)
    assert not retry_limits.reached_limit(
        slot(), replace(slot_history, failed_at=None), NOW
    )  # as job.changed does
    for change in (
        {"unfit": False},
        {"verdict": Verdict.NODE_FAULT},
        {"verdict": None},
    ):
        other = replace(refused, **change)
        assert not retry_limits.reached_limit(slot(), replace(slot_history, attempt=other), NOW)


def test_the_last_failure_is_in_the_message() -> None:
    wanted_slot = slot(limits=Limits(failures=0))
    said = retry_limits.reached_limit(
        wanted_slot, SlotHistory(failures=1, failed_why="w0 exited with 3"), NOW
    )
    assert said == "it failed once without progress, none is forgiven: w0 exited with 3"
    assert retry_limits.reached_limit(wanted_slot, SlotHistory(failures=1), NOW).endswith(
        "forgiven"
    )


@pytest.mark.parametrize(
    ("failures", "changes", "pause"),
    [
        (0, {}, 0), (1, {}, 0), (2, {}, 10), (3, {}, 20), (4, {}, 40), (9, {}, 300), (99, {}, 300),
        (1, {"node_failures": 1}, 10), (0, {"node_failures": 1}, 0), (0, {"node_failures": 3}, 20),
        (0, {"unprepared": 1}, 10), (0, {"unprepared": 2}, 10), (1, {"unprepared": 2}, 20),
        (0, {"missing_inputs": 1}, 10), (0, {"missing_inputs": 3}, 20),
        (0, {"faults": 1}, 15), (1, {"faults": 1}, 15), (2, {"faults": 1}, 20),
    ],
)  # fmt: skip
def test_pauses_grow(failures: int, changes: dict[str, Any], pause: float) -> None:
    slot_history = SlotHistory(failures=failures, failed_at=NOW)
    assert retry_limits.pause_until(slot_history, bid(**changes)) == NOW + pause
    assert retry_limits.pause_until(replace(slot_history, failed_at=None), bid(**changes)) == 0.0


def test_durations_in_words() -> None:
    said = {59: "less than a minute", 60: "1 min", 3599: "59 min", 3600: "1 h", 86399: "23 h",
            86400: "1 d", 200000: "2 d"}  # fmt: skip
    assert {seconds: retry_limits.format_age(seconds) for seconds in said} == said


def test_idle_since() -> None:
    mine = bid(prepared_at=50.0)
    over = AttemptRecord(id="x", number=1, bid=NAME, code_digest="c", launched_at=1, ended_at=70.0)
    assert retry_limits.idle_since(SlotHistory(), mine) == 50.0
    assert retry_limits.idle_since(SlotHistory(attempt=over), mine) == 70.0
    assert retry_limits.idle_since(SlotHistory(attempt=replace(over, ended_at=20.0)), mine) == 50.0
    assert retry_limits.idle_since(SlotHistory(), bid()) == inf


# ---- strays and adoption -------------------------------------------------------------------------


def test_orphans() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    for _ in range(10):
        toy.tick()

    def found(**sights: BidObservation) -> list[str]:
        named = {name.replace("_", "-"): one for name, one in sights.items()}
        observed = replace(toy.observed(), observations=toy.sights() | named)
        return [one.bid for one in find_orphans(toy.desired, observed, toy.history)]

    def shown(name: str) -> BidObservation:
        return replace(sight(NodeState.READY), bid=name)

    assert found() == []
    assert found(gpt_0_g9_me=shown("gpt-0-g9-me")) == ["gpt-0-g9-me"]
    assert found(gpt_7_g1_me=shown("gpt-7-g1-me")) == ["gpt-7-g1-me"]
    assert found(gpt_0_g9_you=shown("gpt-0-g9-you")) == []
    gone = next(iter(toy.kinds("bid.deleted"))).facts["bid"]
    assert found(**{gone: shown(gone)}) == []
    toy.desired = replace(toy.desired, adopted=frozenset(["you"]))
    assert found(gpt_0_g9_you=shown("gpt-0-g9-you")) == ["gpt-0-g9-you"]
    toy.desired = replace(toy.desired, slots={})
    assert len(found()) == 1


def card(**changes: Any) -> dict[str, Any]:
    job = read_fields({"name": "gpt", "accelerator": "v4-16", "run": "true"})
    assert not isinstance(job, list), job
    base = {
        "v": 1, "slot": "gpt-0", "job": job_document(job), "goal": "run", "generation": 1,
        "owner": "me", "node_digest": "n", "code_digest": "c", "snapshot": "s",
        "offer": asdict(offer("a")), "made_at": 3.0, "asked_at": 5.0,
    }  # fmt: skip
    return base | changes


def test_adoption_rebuilds_the_job_of_the_newest_card_and_every_bid() -> None:
    ready = replace(sight(NodeState.READY), card=card())
    queued = BidObservation(
        bid="gpt-0-g2-me", zone="b", request=RequestState.QUEUED,
        card=card(asked_at=9.0, snapshot="t", goal="idle"),
    )  # fmt: skip
    making = replace(ready, bid="gpt-0-g3-me", nodes=(node(NodeState.MAKING),))
    bare = replace(ready, bid="gpt-0-g4-me", card={})
    alien = replace(ready, bid="gpt2-0-g1-me")
    odd = replace(ready, bid="something")
    found = rebuild_records([ready, queued, making, bare, alien, odd], {}, NOW, "me@here")
    (wanted_slot,) = found.stored_jobs
    assert (wanted_slot.job, wanted_slot.goal, wanted_slot.snapshot, wanted_slot.made_at) == (
        "gpt",
        Goal.IDLE,
        "t",
        3.0,
    )
    assert (wanted_slot.changed_at, wanted_slot.who, wanted_slot.document) == (
        NOW,
        "me@here",
        card()["job"],
    )
    assert found.unknown == ("gpt-0-g4-me", "gpt2-0-g1-me", "something")
    assert [event.kind for event in found.events] == ["job.submitted", *["bid.adopted"] * 3]
    history = History()
    for event in found.events:
        history = apply_event(history, event)
    bids = history.slots["gpt-0"].bids
    assert history.slots["gpt-0"].generation == 3
    one = bids[NAME]
    assert (one.asked_at, one.granted_at, one.ready_at, one.answered_at) == (5.0, 5.0, 5.0, NOW)
    assert (one.offer, one.node_digest, one.nodes) == (offer("a"), "n", 1)
    assert bids["gpt-0-g2-me"].granted_at is None
    assert (bids["gpt-0-g3-me"].granted_at, bids["gpt-0-g3-me"].ready_at) == (5.0, None)
    mixed = replace(ready, nodes=(node(), node(NodeState.MAKING)))
    (event,) = rebuild_records([mixed], {"gpt": wanted_slot}, NOW, "me").events[1:]
    assert "ready_at" not in event.facts and event.facts["granted_at"] == 5.0
    again = rebuild_records([ready], {"gpt": wanted_slot}, NOW, "me@here")
    assert not again.stored_jobs
    assert again.events[0].kind == "job.changed"
