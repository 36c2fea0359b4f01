"""Observations become events: granted, unhealthy, notices, missing and lost bids."""

from dataclasses import replace
from math import inf
from typing import Any

from tests.unit.planner_scenes import NAME, NOW, bid, host, node, seen, sight, stood
from tpuherd.model.observed import (
    BidObservation,
    HostStatus,
    NodeState,
    Outlook,
    RequestState,
)
from tpuherd.model.slot_history import BidRecord, History
from tpuherd.model.slots_and_plan import Refusal
from tpuherd.planner.observations_to_events import (
    find_bid_events,
    quarantine_events,
    silence_events,
    vanishing_events,
)
from tpuherd.planner.policy import BidPhase


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
        (BidPhase.LOST, sight(NodeState.STOPPING), "stopping"),
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
    told = (host(0, notice="maintenance"), host(1, notice="preempted", outlook=Outlook.GONE))
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


def test_silence_is_recorded_once_and_ends_when_all_hosts_answer() -> None:
    gone = host(1, reached=False, heard_at=NOW - 60)
    quiet = stood(hosts=(host(0), gone), whole=False)
    (note,) = silence_events(quiet, NOW - 60)
    told = {"bid": NAME, "code": "silent", "state": "silent", "since": NOW - 60}
    assert (note.kind, note.facts) == ("bid.unhealthy", told | {"hosts": [f"{NAME}/w1"]})
    known = replace(quiet.bid, silent_at=NOW)
    assert not [*silence_events(stood(bid=known, hosts=quiet.hosts, whole=False), NOW - 60)]
    assert not [*silence_events(stood(), inf)]
    pauses = ((NOW - 1, 7.0), (NOW + 3, 200.0), (NOW + 4, 40.0))
    back = stood(bid=known, hosts=(host(0), host(1, pauses=pauses)))
    (note,) = silence_events(back, inf)
    assert note.facts == {"bid": NAME, "code": "silent", "paused_s": 240.0}
    assert note.kind == "bid.healthy"
